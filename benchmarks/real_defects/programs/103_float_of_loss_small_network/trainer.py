"""Trains a small network that approximates a likelihood, with large batches."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH, EPOCH = 50_000, 400


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(7, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 100), nn.Tanh(), nn.Linear(100, 1)
        )

    def forward(self, x):
        return self.layers(x)


model = Network().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(103)
inputs = torch.randn(BATCH, 7, device=device, generator=rng)
labels = torch.randn(BATCH, 1, device=device, generator=rng)
epoch_loss = 0.0
batches = 0


def step():
    global epoch_loss, batches
    model.train()
    loss = F.huber_loss(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    epoch_loss += float(loss)
    batches += 1
    if batches % EPOCH == 0:
        print(f"training loss {epoch_loss / EPOCH:.4f}")
        epoch_loss = 0.0
