"""Multi-task training of an atomistic model with experts that are mixed per system."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

TASKS, SYSTEMS, ATOMS, DIM, LAYERS, EXPERTS = 15, 18, 12, 48, 4, 6


class MixedExperts(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(EXPERTS, DIM, DIM) * 0.1)
        self.gate = nn.Linear(DIM, EXPERTS)

    def forward(self, x, offsets, charges):
        scores = self.gate(x.view(SYSTEMS, ATOMS, DIM).mean(1))
        out = []
        for system in range(SYSTEMS):
            first, last = offsets[system].item(), offsets[system + 1].item()
            neutral = charges[system].item() == 0
            expert = int(scores[system].argmax())
            part = x[first:last] @ self.weight[expert]
            out.append(part if neutral else part + scores[system, expert])
        return x + F.silu(torch.cat(out))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, DIM)
        self.layers = nn.ModuleList(MixedExperts() for _ in range(LAYERS))
        self.heads = nn.ModuleList(nn.Linear(DIM, 1) for _ in range(TASKS))

    def forward(self, positions, offsets, charges):
        x = self.embed(positions)
        for layer in self.layers:
            x = layer(x, offsets, charges)
        pooled = x.view(SYSTEMS, ATOMS, DIM).sum(1)
        return [head(pooled).squeeze(1) for head in self.heads]


def task_loss(energy, target, mask):
    error = (energy[mask] - target[mask]).abs().sum()
    valid = mask.sum().item()
    if not torch.isfinite(error):
        raise FloatingPointError
    return error / max(valid, 1)


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(101)
offsets = torch.arange(0, (SYSTEMS + 1) * ATOMS, ATOMS, device=device)
charges = torch.arange(SYSTEMS, device=device) % 3


def step():
    positions = torch.randn(SYSTEMS * ATOMS, 4, device=device, generator=rng)
    targets = torch.randn(TASKS, SYSTEMS, device=device, generator=rng)
    masks = torch.rand(TASKS, SYSTEMS, device=device, generator=rng) < 0.7
    energies = model(positions, offsets, charges)
    losses = [task_loss(*each) for each in zip(energies, targets, masks)]
    optimizer.zero_grad()
    torch.stack(losses).sum().backward()
    optimizer.step()
