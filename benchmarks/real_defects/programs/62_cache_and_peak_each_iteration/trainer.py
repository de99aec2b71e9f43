"""Graph convolution on random neighbourhoods; reports its memory now and then."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NODES, FEATURES, CLASSES, SEEDS, FANOUT = 2000, 32, 7, 128, 8

rng = torch.Generator(device=device).manual_seed(63)
features = torch.randn(NODES, FEATURES, device=device, generator=rng)
labels = features[:, :CLASSES].argmax(dim=1)
neighbours = torch.randint(0, NODES, (NODES, 32), device=device, generator=rng)


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.own1, self.near1 = nn.Linear(FEATURES, 64), nn.Linear(FEATURES, 64, bias=False)
        self.own2, self.near2 = nn.Linear(64, CLASSES), nn.Linear(64, CLASSES, bias=False)

    def forward(self, x0, x1, x2):
        """Features of the seeds, of their neighbours and of the neighbours' neighbours."""
        h0 = F.relu(self.own1(x0) + self.near1(x1.mean(dim=1)))
        h1 = F.relu(self.own1(x1) + self.near1(x2.mean(dim=2)))
        return self.own2(h0) + self.near2(h1.mean(dim=1))


def sampled(nodes):
    columns = torch.randint(0, neighbours.size(1), (*nodes.shape, FANOUT), device=device, generator=rng)
    return neighbours[nodes].gather(-1, columns)


model = Sage().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
running = torch.zeros((), device=device)
count = 0


def train_on(seeds):
    first = sampled(seeds)
    second = sampled(first)
    logits = model(features[seeds], features[first], features[second])
    loss = F.cross_entropy(logits, labels[seeds])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def step():
    global count
    seeds = torch.randint(0, NODES, (SEEDS,), device=device, generator=rng)
    running.add_(train_on(seeds))
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    count += 1
    if count % 50 == 0:
        print(f"{count}: {running.item() / 50:.4f}")
        running.zero_()
