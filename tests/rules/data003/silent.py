import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def batches_that_stay_on_the_host__rehearsal():
    model, w = nn.Linear(8, 1), torch.ones(1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4))

    def step():
        (x,) = next(batches)
        model(x).mean().backward()
        w.mul_(0.5)

    return step


def pinned_by_hand__rehearsal():
    model = nn.Linear(512, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))

    def step():
        (x,) = next(batches)
        model(x.pin_memory().to("cuda", non_blocking=True)).mean().backward()

    return step


def batches_of_a_few_bytes_are_a_note__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4))

    def step():
        (x,) = next(batches)
        model(x.to("cuda")).mean().backward()

    return step


def a_training_run_on_the_cpu():
    model = nn.Linear(512, 1)
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))

    def step():
        (x,) = next(batches)
        model(x).mean().backward()

    return step


class _Pinned:
    def __init__(self, rows):
        self.x = torch.stack([row[0] for row in rows])

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self


def class_of_batches_that_pins_itself__rehearsal():
    model = nn.Linear(512, 1, device="cuda")
    data = TensorDataset(torch.ones(4000, 512))
    batches = iter(DataLoader(data, batch_size=64, pin_memory=True, collate_fn=_Pinned))
    return lambda: model(next(batches).x.to("cuda", non_blocking=True)).mean().backward()
