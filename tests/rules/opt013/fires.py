import torch
from torch import nn

from tests.rules.programs import trained_once


def by_a_class_that_trains_an_epoch():
    class Trainer:
        def __init__(self):
            self.model, self.left = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)), 0

        def train_step(self):
            if not self.left:
                groups = [{"params": self.model[0].parameters(), "lr": 0.01}]
                groups.append({"params": self.model[1].parameters()})
                self.optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)  # OPT013
                self.left = 3
            self.left -= 1
            trained_once(self.model, self.optimizer, torch.randn(4, 8))

    return Trainer().train_step


def on_each_step_beside_another_that_stays():
    one, two = nn.Linear(8, 1), nn.Linear(8, 1)
    stays = torch.optim.Adam(two.parameters(), lr=1e-3)

    def step():
        optimizer = torch.optim.AdamW(one.parameters(), lr=1e-3)  # OPT013
        trained_once(one, optimizer, torch.randn(4, 8))
        trained_once(two, stays, torch.randn(4, 8))

    return step
