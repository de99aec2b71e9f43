import copy

import torch
from torch import nn

from tests.rules.ckpt009.silent import _trained
from tests.rules.programs import optimized


def best_state_that_the_end_of_training_loads():
    def main():
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        best, best_state = float("inf"), None
        for _ in range(100):
            for _ in range(4):
                loss = _trained(model, optimizer)
                yield
            if loss.item() < best:
                best = loss.item()
                best_state = model.state_dict()  # CKPT009
        model.load_state_dict(best_state)

    return main().__next__


def early_stopping_keeps_it_in_a_dict_of_its_own():
    class Stopper:
        def __init__(self):
            self.least, self.kept = float("inf"), {}

        def __call__(self, model, value):
            if value < self.least:
                self.least = value
                self.kept = {"model": model.state_dict(), "value": value}  # CKPT009

        def restore(self, model):
            model.load_state_dict(self.kept["model"])

    model, stopper = nn.Conv1d(8, 1, 1), Stopper()
    optimizer, count = torch.optim.SGD(model.parameters(), lr=1e-3), [0]

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8, 3)).square().mean()
        loss.backward()
        optimizer.step()
        count[0] += 1
        if count[0] % 5 == 0:
            stopper(model, loss.item())

    return step


def weights_before_a_task_that_are_loaded_after_it():
    model = nn.Linear(8, 1)

    def task():
        before = model.state_dict()  # CKPT009
        inner = torch.optim.SGD(model.parameters(), lr=1e-2)
        for _ in range(3):
            _trained(model, inner)
        model.load_state_dict(before)

    return task


def shallow_copy_that_is_saved_as_the_best(path="/dev/null"):
    def main():
        model, optimizer = optimized(nn.GRU(8, 4), torch.optim.AdamW)
        best_loss, best_weights = float("inf"), None
        for epoch in range(100):
            optimizer.zero_grad()
            loss = model(torch.ones(5, 2, 8))[0].square().mean()
            loss.backward()
            optimizer.step()
            yield
            if epoch % 6 == 3 and loss < best_loss:
                best_loss, best_weights = loss, None
                best_weights = model.state_dict().copy()  # CKPT009
        torch.save(best_weights, path)

    return main().__next__


def state_to_roll_back_to():
    model, optimizer = optimized(nn.Linear(8, 1))
    kept, count = [copy.deepcopy(model.state_dict())], [0]

    def step():
        count[0] += 1
        if _trained(model, optimizer).item() > 1e9 or count[0] % 8 == 0:
            model.load_state_dict(kept[0])
        if count[0] % 8 == 4:
            kept[0] = {name: value for name, value in model.state_dict().items()}  # CKPT009

    return step
