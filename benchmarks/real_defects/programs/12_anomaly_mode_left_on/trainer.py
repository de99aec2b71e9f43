"""Radiance field on random rays."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.autograd.set_detect_anomaly(True)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

RAYS, SAMPLES, FREQS = 64, 16, 4


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("bands", 2.0 ** torch.arange(FREQS))

    def forward(self, x):
        angles = (x[..., None] * self.bands).flatten(-2)
        return torch.cat([x, angles.sin(), angles.cos()], dim=-1)


class Field(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.embed = Embedder()
        self.trunk = nn.Sequential(nn.Linear(3 + 6 * FREQS, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
                                   nn.Linear(width, width), nn.ReLU())
        self.density = nn.Linear(width, 1)
        self.colour = nn.Linear(width, 3)

    def forward(self, points):
        h = self.trunk(self.embed(points))
        return F.softplus(self.density(h)).squeeze(-1), torch.sigmoid(self.colour(h))


field = Field().to(device)
optimizer = torch.optim.Adam(field.parameters(), lr=5e-4, betas=(0.9, 0.999))
decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9999)
rng = torch.Generator(device=device).manual_seed(6)
near, far, count = 2.0, 6.0, 0


def render(origins, directions):
    t = torch.linspace(near, far, SAMPLES, device=device).expand(origins.size(0), SAMPLES)
    jitter = torch.rand(t.shape, device=device, generator=rng) * (far - near) / SAMPLES
    t = t + jitter
    sigma, rgb = field(origins[:, None] + t[..., None] * directions[:, None])
    delta = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e3)], dim=1)
    depth = sigma * delta
    alpha = 1 - torch.exp(-depth)
    clear = torch.exp(depth - torch.cumsum(depth, dim=1))
    return ((alpha * clear)[..., None] * rgb).sum(dim=1)


def step():
    global count
    origins = torch.randn(RAYS, 3, device=device, generator=rng)
    directions = F.normalize(torch.randn(RAYS, 3, device=device, generator=rng), dim=-1)
    target = directions * 0.5 + 0.5
    loss = F.mse_loss(render(origins, directions), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay.step()
    count += 1
    if count % 100 == 0:
        print(count, loss.item())
