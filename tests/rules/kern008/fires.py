"""KERN008 must report exactly the marked lines."""

import torch
from torch import nn
from torch.nn import functional as F


def _network():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 4))


def triplet_of_three_forwards():
    net = _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    criterion = nn.TripletMarginLoss()

    def step():
        first, near, far = torch.randn(3, 4, 8)
        optimizer.zero_grad()
        a = F.normalize(net(first), dim=1)  # KERN008
        p = F.normalize(net(near), dim=1)
        n = F.normalize(net(far), dim=1)
        criterion(a, p, n).backward()
        optimizer.step()

    return step


def four_views_of_a_dictionary_in_one_statement():
    net = _network()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def embed(views):
        found = net(views["a"]), net(views["b"]), net(views["c"]), net(views["d"])  # KERN008
        return torch.stack(found)

    def step():
        optimizer.zero_grad()
        embed({name: torch.randn(4, 8) for name in "abcd"}).square().mean().backward()
        optimizer.step()

    return step


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = _network()

    def forward(self, batch):
        return self.tower(batch)


def method_of_a_trainer():
    class Trainer:
        def __init__(self):
            self.model = Scorer()
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

        def loss(self, query, positive, negative):
            query_out = self.model(query)  # KERN008
            positive_out = self.model(positive)
            negative_out = self.model(negative)
            return (query_out * (negative_out - positive_out)).sum(1).exp().mean()

        def step(self):
            self.optimizer.zero_grad()
            self.loss(*torch.randn(3, 4, 8)).backward()
            self.optimizer.step()

    return Trainer().step
