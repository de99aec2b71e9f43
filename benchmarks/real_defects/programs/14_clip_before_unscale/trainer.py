"""FixMatch-like semi-supervised training with mixed precision."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
amp_dtype = torch.float16 if device.type == "cuda" else torch.bfloat16

CLASSES, LABELED, UNLABELED, THRESHOLD, CLIP = 5, 4, 8, 0.8, 1.0

model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES),
).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
scaler = torch.amp.GradScaler(device.type)
rng = torch.Generator(device=device).manual_seed(14)
prototypes = torch.randn(CLASSES, 3, 16, 16, device=device, generator=rng)
iteration = 0


def images(labels):
    return prototypes[labels] + 0.5 * torch.randn(labels.numel(), 3, 16, 16, device=device, generator=rng)


def weak(x):
    return x.roll(1, dims=-1)


def strong(x):
    return x.flip(-1) + 0.2 * torch.randn(x.shape, device=device, generator=rng)


def step():
    global iteration
    labels = torch.randint(0, CLASSES, (LABELED,), device=device, generator=rng)
    hidden = torch.randint(0, CLASSES, (UNLABELED,), device=device, generator=rng)
    x_l, x_u = images(labels), images(hidden)
    with torch.autocast(device.type, dtype=amp_dtype):
        logits = model(torch.cat([x_l, weak(x_u), strong(x_u)]))
    logits = logits.float()
    sup, weak_out, strong_out = logits.split([LABELED, UNLABELED, UNLABELED])
    confidence, pseudo = weak_out.detach().softmax(dim=-1).max(dim=-1)
    keep = (confidence >= THRESHOLD).float()
    loss = F.cross_entropy(sup, labels) + (F.cross_entropy(strong_out, pseudo, reduction="none") * keep).mean()

    optimizer.zero_grad()
    scaler.scale(loss).backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    scaler.step(optimizer)
    scaler.update()
    iteration += 1
    if iteration % 50 == 0:
        print(iteration, loss.item())
