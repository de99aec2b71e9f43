import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_by


def batch_moved_whole__rehearsal():
    device = "cuda"
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)).to(device)

    def loss():
        batch = {"ids": torch.randint(0, 50, (16, 64)), "mask": torch.ones(16, 64, dtype=torch.long), "image": torch.randn(16, 3, 32, 32)}
        batch = {k: v.to(device) for k, v in batch.items()}  # WASTE003
        return F.cross_entropy(model(batch["ids"]).flatten(0, 1), batch["ids"].flatten())

    return trained_by(model, loss)


def read_only_by_another_model__rehearsal():
    """What decides is the same on each step."""
    uses_weights = False
    model = nn.Linear(32, 8).to("cuda")

    def loss_of():
        x = torch.randn(64, 32).to("cuda")
        w = torch.rand(64, 16).to("cuda")  # WASTE003
        loss = model(x).square().mean()
        if uses_weights:
            loss = loss * w.mean()
        return loss

    return trained_by(model, loss_of)
