"""Autoencoder which stops when a gradient is not finite."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, DIM = 32, 96


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes[:-1], sizes[1:]):
        layers += [nn.Linear(a, b), nn.LayerNorm(b), nn.SiLU()]
    return nn.Sequential(*layers[:-2])


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = mlp(DIM, 64, 48, 32, 8)
        self.decoder = mlp(8, 32, 48, 64, DIM)

    def forward(self, x):
        return self.decoder(self.encoder(x))


model = AutoEncoder().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(32)
basis = torch.randn(8, DIM, device=device, generator=rng)
count = 0


def check_gradients():
    for name, p in model.named_parameters():
        if not torch.isfinite(p.grad).all():
            raise FloatingPointError(f"step {count}: gradient of {name}")


def step():
    global count
    code = torch.randn(BATCH, 8, device=device, generator=rng)
    x = torch.tanh(code @ basis)
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    check_gradients()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(f"{count}: loss {loss.item():.4f}")
