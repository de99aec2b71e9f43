"""Variational autoencoder for tabular data with unscaled columns."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, COLUMNS, LATENT = 64, 12, 6


class TabularVAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(COLUMNS, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU())
        self.mu, self.logvar = nn.Linear(64, LATENT), nn.Linear(64, LATENT)
        self.decoder = nn.Sequential(nn.Linear(LATENT, 64), nn.LeakyReLU(), nn.Linear(64, COLUMNS))

    def forward(self, x, noise):
        hidden = self.encoder(x)
        mu = self.mu(hidden)
        logvar = self.logvar(hidden).clamp(-30.0, 20.0)
        std = torch.exp(0.5 * logvar)
        return self.decoder(mu + std * noise), mu, logvar


model = TabularVAE().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-5)
rng = torch.Generator(device=device).manual_seed(61)
running = torch.zeros((), device=device)
count = 0

pool_rng = torch.Generator().manual_seed(62)
pool = torch.randn(40 * BATCH, COLUMNS, generator=pool_rng)
pool[:, 0] = 20000 + 15000 * pool[:, 0].abs()  # income
pool[:, 1] = 30 + 20 * pool[:, 1].abs()  # age
if device.type == "cuda":
    pool = pool.pin_memory()


def rows(index):
    low = (index % 40) * BATCH
    return pool[low:low + BATCH].to(device, non_blocking=True)


def step():
    global count
    x = rows(count)
    noise = torch.randn(BATCH, LATENT, device=device, generator=rng)
    output, mu, logvar = model(x, noise)
    reconstruction = F.huber_loss(output, x)
    kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(dim=1).mean()
    loss = reconstruction + kld
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, running.item() / 50)
        running.zero_()
