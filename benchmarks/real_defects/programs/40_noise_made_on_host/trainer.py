"""Denoising diffusion on small images."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIZE, STEPS = 6, 32, 200

betas = torch.linspace(1e-4, 0.02, STEPS, device=device)
alphas_bar = torch.cumprod(1 - betas, dim=0)


class Denoiser(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.time = nn.Sequential(nn.Embedding(STEPS, width), nn.Linear(width, width), nn.SiLU())
        self.inp = nn.Conv2d(3, width, 3, padding=1)
        self.mid = nn.ModuleList([nn.Conv2d(width, width, 3, padding=1) for _ in range(2)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, width) for _ in range(2)])
        self.out = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t):
        h = self.inp(x) + self.time(t)[:, :, None, None]
        for conv, norm in zip(self.mid, self.norms):
            h = h + conv(F.silu(norm(h)))
        return self.out(h)


model = Denoiser().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
image_rng = torch.Generator(device=device).manual_seed(40)
noise_rng = torch.Generator().manual_seed(41)
running = torch.zeros((), device=device)
count = 0


def images():
    coarse = torch.rand(BATCH, 3, 4, 4, device=device, generator=image_rng)
    return F.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear", align_corners=False) * 2 - 1


def step():
    global count
    x0 = images()
    t = torch.randint(0, STEPS, (BATCH,), generator=noise_rng).to(device)
    noise = torch.randn(x0.shape, generator=noise_rng).to(device)
    level = alphas_bar[t][:, None, None, None]
    noisy = level.sqrt() * x0 + (1 - level).sqrt() * noise
    loss = F.mse_loss(model(noisy, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, running.item() / 50)
        running.zero_()
