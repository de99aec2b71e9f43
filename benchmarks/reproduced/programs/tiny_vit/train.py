import math
import random
import time

import numpy as np
import torch

from mixing import mixup, soft_ce
from vit import TinyViT

torch.set_num_threads(1)

seed = 42
classes = 10
steps = 32
batch = 40
warmup = 5
base_lr = 1.5e-3

# reproducibility
random.seed(seed)
np.random.seed(seed)
torch.manual_seed(seed)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True


def fake_digits(n):
    protos = np.random.randn(classes, 24, 24)
    for _ in range(3):
        protos = (protos + np.roll(protos, 1, 1) + np.roll(protos, 1, 2)) / 3
    protos /= protos.std((1, 2), keepdims=True)
    y = np.random.randint(classes, size=n)
    x = protos[y] + 1.2 * np.random.randn(n, 24, 24)
    return torch.tensor(x[:, None], dtype=torch.float32), torch.tensor(y)


def lr_at(t):
    if t < warmup:
        return base_lr * (t + 1) / warmup
    return 0.5 * base_lr * (1 + math.cos(math.pi * (t - warmup) / (steps - warmup)))


def no_decay_groups(model):
    decay, plain = [], []
    for name, p in model.named_parameters():
        (plain if p.ndim < 2 or name == "pos" else decay).append(p)
    return [{"params": decay, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]


X, Y = fake_digits(1000)
Xv, Yv = X[800:], Y[800:]
X, Y = X[:800], Y[:800]
model = TinyViT(classes=classes)
opt = torch.optim.AdamW(no_decay_groups(model), lr=base_lr)

start = time.time()
for t in range(steps):
    for g in opt.param_groups:
        g["lr"] = lr_at(t)
    model.train()
    idx = torch.randint(len(X), (batch,))
    xb, tb = mixup(X[idx], Y[idx], classes)
    loss = soft_ce(model(xb), tb)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(f"it {t:3d} lr {lr_at(t):.2e} loss {loss.item():.7f}")

model.eval()
with torch.no_grad():
    acc = (model(Xv).argmax(1) == Yv).float().mean().item()
print(f"val acc {acc:.3f} ({time.time() - start:.1f}s)")
