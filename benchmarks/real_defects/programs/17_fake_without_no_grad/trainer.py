"""DCGAN on small images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
Z, BATCH = 32, 8

G = nn.Sequential(
    nn.Linear(Z, 64 * 4 * 4), nn.Unflatten(1, (64, 4, 4)), nn.BatchNorm2d(64), nn.ReLU(),
    nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.BatchNorm2d(32), nn.ReLU(),
    nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh(),
).to(device)
D = nn.Sequential(
    nn.Conv2d(3, 32, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 64, 4, 2, 1), nn.LeakyReLU(0.2),
    nn.Flatten(), nn.Linear(64 * 4 * 4, 1),
).to(device)
d_optimizer = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
g_optimizer = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
rng = torch.Generator(device=device).manual_seed(17)
sums = torch.zeros(2, device=device)
batches = 0


def noise():
    return torch.rand(BATCH, Z, device=device, generator=rng) * 2 - 1


def real_images():
    ramp = torch.linspace(-1, 1, 16, device=device)
    angle = torch.rand(BATCH, 3, 1, 1, device=device, generator=rng) * 6.28
    return torch.sin(3 * ramp[None, None, :, None] + angle) * torch.cos(3 * ramp[None, None, None, :] - angle)


def adversarial(logits, real):
    target = torch.full_like(logits, 0.9) if real else torch.zeros_like(logits)
    return F.binary_cross_entropy_with_logits(logits, target)


def step():
    global batches
    d_optimizer.zero_grad()
    d_real = adversarial(D(real_images()), True)
    fake = G(noise())
    d_fake = adversarial(D(fake), False)
    d_loss = d_real + d_fake
    d_loss.backward()
    d_optimizer.step()

    D.requires_grad_(False)
    g_optimizer.zero_grad()
    g_loss = adversarial(D(G(noise())), True)
    g_loss.backward()
    g_optimizer.step()
    D.requires_grad_(True)

    sums.add_(torch.stack([d_loss.detach(), g_loss.detach()]))
    batches += 1
    if batches % 40 == 0:
        d_mean, g_mean = (sums / 40).tolist()
        print(f"{batches} d {d_mean:.3f} g {g_mean:.3f}")
        sums.zero_()
