"""Multi-task training of a potential: each sample has labels of some tasks."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

TASKS, BATCH, FEATURES, DIM = 15, 64, 32, 128


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(FEATURES, DIM), nn.SiLU(), nn.Linear(DIM, DIM), nn.SiLU(), nn.Linear(DIM, DIM), nn.SiLU()
        )
        self.heads = nn.ModuleList(nn.Linear(DIM, 1) for _ in range(TASKS))

    def forward(self, x):
        x = self.body(x)
        return torch.cat([head(x) for head in self.heads], dim=1)


class TaskLoss(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, prediction, target, valid):
        error = torch.where(valid, (prediction - target).abs(), 0.0)
        count = valid.sum().item()
        return self.weight * error.sum() / max(count, 1)


model = Potential().to(device)
losses = [TaskLoss(1.0 + 0.1 * task) for task in range(TASKS)]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(102)


def step():
    x = torch.randn(BATCH, FEATURES, device=device, generator=rng)
    targets = torch.randn(BATCH, TASKS, device=device, generator=rng)
    valid = torch.rand(BATCH, TASKS, device=device, generator=rng) < 0.4
    predictions = model(x)
    total = torch.zeros((), device=device)
    for task, loss in enumerate(losses):
        total = total + loss(predictions[:, task], targets[:, task], valid[:, task])
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
