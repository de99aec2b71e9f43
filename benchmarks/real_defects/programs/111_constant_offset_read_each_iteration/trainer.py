"""Embeds points in two dimensions: each rank moves its chunk of them."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

POINTS, NEIGHBOURS, NEGATIVES, FIRST, CHUNK = 20_000, 15, 5, 4_000, 8_000


class Embedding:
    def __init__(self):
        self.places = torch.randn(POINTS, 2, device=device, generator=rng)
        self.neighbours = torch.randint(0, POINTS, (CHUNK, NEIGHBOURS), device=device, generator=rng)
        self.chunk = torch.arange(FIRST, FIRST + CHUNK, device=device)

    def gradients(self):
        start = self.chunk[0].item()
        mine = self.places[start : start + CHUNK]
        pull = mine[:, None] - self.places[self.neighbours]
        others = torch.randint(0, POINTS, (CHUNK, NEGATIVES), device=device, generator=rng)
        push = mine[:, None] - self.places[others]
        attracted = (pull / (1 + pull.square().sum(2, keepdim=True))).sum(1)
        repelled = (push / (0.001 + push.square().sum(2, keepdim=True)).square()).clamp(-4, 4).sum(1)
        out = torch.zeros_like(self.places)
        out[start : start + CHUNK] = attracted - repelled
        return out


rng = torch.Generator(device=device).manual_seed(111)
embedding = Embedding()
places = nn.Parameter(embedding.places)
optimizer = torch.optim.SGD([places], lr=0.1, momentum=0.5)


@torch.no_grad()
def step():
    embedding.places = places
    places.grad = embedding.gradients()
    optimizer.step()
