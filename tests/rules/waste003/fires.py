import copy
from copy import deepcopy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_by, trained_then


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


class _Learner:
    def __init__(self, data):
        self.model = nn.Linear(64, 8)
        self.data = data
        self.kept = None


def _learning(learner, after):
    return trained_then(learner.model, torch.ones(4, 64), lambda n: n % 4 or after(n))


def module_taken_out_of_a_copy_of_all__note():
    learner = _Learner([np.zeros((500, 64)) for _ in range(8)])

    def refresh(number):
        learner.data[0][number] = number
        learner.kept = copy.deepcopy(learner).model.eval()  # WASTE003

    return _learning(learner, refresh)


def kept_with_data_that_nothing_writes__note():
    learner = _Learner(torch.ones(5000, 64))
    learner.steps = torch.tensor(0)

    def snapshot(_):
        learner.steps += 1
        learner.kept = None
        learner.kept = copy.deepcopy({"all": learner})  # WASTE003

    return _learning(learner, snapshot)


def kept_with_a_memory_that_changes__note():
    learner = _Learner([torch.zeros(1000) for _ in range(500)])

    def snapshot(number):
        learner.data[number].fill_(number)
        learner.kept = None
        learner.kept = deepcopy(learner)  # WASTE003

    return _learning(learner, snapshot)
