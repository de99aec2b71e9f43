import torch
import torch.nn.functional as F
from torch import nn


def batch_moved_whole__rehearsal():
    device = "cuda"
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        batch = {"ids": torch.randint(0, 50, (16, 64)), "mask": torch.ones(16, 64, dtype=torch.long), "image": torch.randn(16, 3, 32, 32)}
        batch = {k: v.to(device) for k, v in batch.items()}  # WASTE003
        opt.zero_grad()
        F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["ids"].flatten()).backward()
        opt.step()

    return step


def weights_moved_never_read__rehearsal():
    device = "cuda"
    model = nn.Linear(32, 8).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x, y, w = torch.randn(64, 32), torch.randint(0, 8, (64,)), torch.rand(64, 16)
        x = x.to(device)
        y = y.to(device)
        w = w.to(device)  # WASTE003
        opt.zero_grad()
        F.cross_entropy(model(x), y).backward()
        opt.step()

    return step


def read_only_by_another_model__rehearsal():
    """What decides is the same on each step."""
    uses_weights = False
    model = nn.Linear(32, 8).to("cuda")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(64, 32).to("cuda")
        w = torch.rand(64, 16).to("cuda")  # WASTE003
        opt.zero_grad()
        loss = model(x).square().mean()
        if uses_weights:
            loss = loss * w.mean()
        loss.backward()
        opt.step()

    return step
