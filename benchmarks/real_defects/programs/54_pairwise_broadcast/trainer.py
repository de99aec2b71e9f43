"""Sequence autoencoder trained with a soft alignment cost."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, LENGTH, FEATURES, HIDDEN = 8, 48, 24, 48


def squared_distances(x, y):
    """batch x n x d and batch x m x d -> batch x n x m."""
    difference = x[:, :, None, :] - y[:, None, :, :]
    return difference.pow(2).sum(dim=-1)


def alignment_cost(x, y, temperature=1.0):
    """Soft nearest neighbour in both directions, near the diagonal."""
    position = torch.arange(x.size(1), device=x.device, dtype=x.dtype)
    bias = (position[:, None] - position[None, :]).abs() * 0.1
    cost = squared_distances(x, y) / x.size(2) + bias
    forward = -temperature * torch.logsumexp(-cost / temperature, dim=2)
    backward = -temperature * torch.logsumexp(-cost / temperature, dim=1)
    return forward.mean() + backward.mean()


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv1d(FEATURES, HIDDEN, 9, padding=4)
        self.squeeze = nn.Conv1d(HIDDEN, 8, 1)
        self.decoder = nn.Sequential(nn.Conv1d(8, HIDDEN, 9, padding=4), nn.ReLU(), nn.Conv1d(HIDDEN, FEATURES, 1))

    def forward(self, x):
        code = self.squeeze(torch.relu(self.encoder(x.transpose(1, 2))))
        return self.decoder(code).transpose(1, 2)


model = AutoEncoder().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(54)
time = torch.linspace(0, 6.28, LENGTH, device=device)[None, :, None]
running = torch.zeros((), device=device)
count = 0


def step():
    global count
    frequency = 0.5 + 2 * torch.rand(BATCH, 1, FEATURES, device=device, generator=rng)
    series = torch.sin(time * frequency)
    loss = alignment_cost(model(series), series)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, running.item() / 50)
        running.zero_()
