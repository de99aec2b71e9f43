"""Energy regression on small molecular graphs, validated every ten steps."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

ATOMS, ELEMENTS, BATCH, WIDTH = 12, 6, 8, 48


class MessagePassing(nn.Module):
    def __init__(self):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(16, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))

    def forward(self, h, basis):
        return h + self.update(torch.einsum("bijc,bjc->bic", self.filter(basis), h))


class EnergyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, WIDTH)
        self.layers = nn.ModuleList([MessagePassing() for _ in range(2)])
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Dropout(0.1), nn.Linear(WIDTH, 1))
        self.register_buffer("centres", torch.linspace(0, 5, 16))

    def forward(self, z, pos):
        dist2 = (pos[:, :, None] - pos[:, None]).pow(2).sum(-1, keepdim=True)
        basis = torch.exp(-(torch.sqrt(dist2 + 1e-6) - self.centres).pow(2))
        h = self.embed(z)
        for layer in self.layers:
            h = layer(h, basis)
        return self.readout(h).sum(dim=(1, 2))


model = EnergyModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(21)
iteration = 0


def sample(n):
    z = torch.randint(0, ELEMENTS, (n, ATOMS), device=device, generator=rng)
    pos = torch.randn(n, ATOMS, 3, device=device, generator=rng)
    energy = (z.float().mean(1) - 2.5) + pos.pow(2).mean(dim=(1, 2))
    return z, pos, energy


val_set = [sample(BATCH) for _ in range(2)]


def validate():
    model.eval()
    error = torch.zeros((), device=device)
    for z, pos, energy in val_set:
        predicted = model(z, pos)
        error = error + F.l1_loss(predicted, energy)
    model.train()
    print(f"step {iteration}: validation MAE {error.item() / len(val_set):.4f}")


def step():
    global iteration
    z, pos, energy = sample(BATCH)
    loss = F.l1_loss(model(z, pos), energy)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    iteration += 1
    if iteration % 10 == 0:
        validate()
