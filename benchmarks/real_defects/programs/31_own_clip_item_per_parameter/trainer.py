"""Deep residual MLP with a hand-written gradient clip."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
WIDTH, DEPTH, BATCH, MAX_NORM = 64, 8, 32, 1.0


class Unit(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


model = nn.Sequential(nn.Linear(20, WIDTH), *[Unit() for _ in range(DEPTH)], nn.Linear(WIDTH, 3)).to(device)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(31)
history = torch.zeros(2, device=device)
count = 0


def clip_gradients(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = 0.0
    for grad in grads:
        total_norm += grad.norm().item() ** 2
    total_norm = total_norm ** 0.5
    coefficient = max_norm / (total_norm + 1e-6)
    if coefficient < 1:
        torch._foreach_mul_(grads, coefficient)
    return total_norm


def batch():
    x = torch.randn(BATCH, 20, device=device, generator=rng)
    target = torch.stack([x[:, :5].sum(1), x[:, 5] * x[:, 6], x[:, 7].sin()], dim=1)
    return x, target


def step():
    global count
    x, target = batch()
    loss = F.smooth_l1_loss(model(x), target)
    optimizer.zero_grad()
    loss.backward()
    norm = clip_gradients(model.parameters(), MAX_NORM)
    optimizer.step()
    history[0] += loss.detach()
    history[1] += norm
    count += 1
    if count % 50 == 0:
        mean_loss, mean_norm = (history / 50).tolist()
        print(f"{count}: loss {mean_loss:.4f} norm {mean_norm:.3f}")
        history.zero_()
