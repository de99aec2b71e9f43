"""Steps that are not the same twice, each for one planted reason, and twins that are. A cause is
marked in the line that must be named: ``# torch``, ``# -`` where nothing that can be held is to
blame.
"""

import datetime as dt
import os
import random
import threading
import time
import uuid

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

X = torch.arange(64.0).reshape(8, 8) / 64
WORDS = ["ape", "bee", "cat", "dog", "eel", "fox", "gnu"]


def fixed(*more):
    """A small model whose weights are no draw."""
    model = nn.Sequential(nn.Linear(8, 4), *more, nn.Linear(4, 1))
    with torch.no_grad():
        for n, each in enumerate(model.parameters()):
            each.copy_(torch.linspace(-1, 1, each.numel()).reshape(each.shape) / (n + 1))
    return model


def training(loss, parameters=()):
    parameters = list(parameters) or [nn.Parameter(torch.ones(8))]
    optimizer = torch.optim.SGD(parameters, lr=0.01)

    def step():
        optimizer.zero_grad()
        loss(*parameters).backward()
        optimizer.step()

    return step


# -- not the same twice ----------------------------------------------------------------------------


def initial_weights():
    model = nn.Linear(8, 1)  # torch
    return training(lambda *_: model(X).square().mean(), model.parameters())


def dropout():
    model = fixed(nn.Dropout())
    return training(lambda *_: model(X).square().mean(), model.parameters())  # torch


def python_number():
    return training(lambda w: (X * w * random.random()).sum())  # random


def numpy_noise():
    def loss(w):
        noise = torch.from_numpy(np.random.rand(8).astype("float32"))  # noqa: NPY002
        return (X * w + noise * w).sum()  # numpy

    return training(loss)


def numpy_own_generator():
    generator = np.random.default_rng()

    return training(lambda w: (X * w * float(generator.random())).sum())  # numpy


def seeded_by_the_time():
    torch.manual_seed(time.time_ns())
    return training(lambda w: (torch.randn(8) * w).sum())  # clock


def seeded_too_late():
    noise = torch.randn(8)  # torch
    torch.manual_seed(0)
    return training(lambda w: (noise * w).sum())


def order_of_a_set():
    def loss(w):
        total = torch.zeros(())
        for n, word in enumerate({*WORDS}):
            total = total + (w * len(word) * n * WORDS.index(word)).sum()  # hash
        return total

    return training(loss)


def hash_of_a_word():
    return training(lambda w: (X * w * (hash("word") % 1000)).sum())  # hash


def the_time():
    return training(lambda w: (X * w * (time.time() % 1)).sum())  # clock


def annealed_by_the_clock():
    began = time.perf_counter()

    def loss(w):
        return (w * X).sum() * (time.perf_counter() - began)  # clock

    return training(loss)


def drawn_to_the_host():
    share = torch.randperm(997).tolist()[0]  # drawn by torch
    return training(lambda w: (w * share).sum())  # torch


def drawn_to_the_host_by_its_own():
    own = torch.Generator()
    own.seed()
    share = torch.randperm(997, generator=own).tolist()[0]  # drawn by its own
    return training(lambda w: (w * share).sum())  # -


def own_generator_from_the_system():
    generator = torch.Generator()
    generator.seed()
    return training(lambda w: (torch.rand(8, generator=generator) * w).sum())  # -


def bytes_from_the_system():
    return training(lambda w: (w * (os.urandom(1)[0] / 255)).sum())  # system


def own_random_without_a_seed():
    own = random.Random()
    return training(lambda w: (w * own.random()).sum())  # system


def numpy_state_without_a_seed():
    own = np.random.RandomState()  # drawn without one
    np.random.RandomState(7)
    return training(lambda w: (w * own.uniform()).sum())  # system


def name_of_a_run():
    share = uuid.uuid4().int % 997
    return training(lambda w: (w * share).sum())  # system


def two_causes():
    def loss(w):
        first = w * random.random()  # random
        return (first * os.urandom(1)[0]).sum()

    return training(loss)


def number_of_the_process():
    return training(lambda w: (w * os.getpid()).sum())  # -


def drawn_in_a_helper():
    def weight():
        return random.uniform(0, 1)  # drawn here

    share = weight()
    return training(lambda w: (w * share).sum())  # random


def the_date():
    return training(lambda w: (w * (dt.datetime.now().microsecond + 1)).sum())  # -


def order_of_addresses():
    class Part:
        def __init__(self, n):
            self.n = n
            self.pad = bytearray(from_outside(n) % 251 * 64 + 1)

    parts = {Part(n) for n in range(40)}

    def loss(w):
        total = torch.zeros(())
        for part in parts:
            total = total + (w * (1.1**part.n)).sum()  # -
        return total

    return training(loss)


class Noisy(Dataset):
    def __init__(self, draw):
        self.draw = draw

    def __len__(self):
        return 64

    def __getitem__(self, n):
        # torch in shuffled, random in augmented_in_the_process: the next line
        return torch.full((8,), float(n)) + self.draw()


def batches_of(loader):
    while True:
        yield from loader  # torch in augmented_in_workers, numpy in workers_own_generators


def shuffled():
    batches = batches_of(DataLoader(Noisy(lambda: 0), 8, shuffle=True))
    return training(lambda w: (next(batches) * w).sum())


def augmented_in_the_process():
    batches = batches_of(DataLoader(Noisy(random.random), 8))
    return training(lambda w: (next(batches) * w).sum())


def augmented_in_workers():
    batches = batches_of(DataLoader(Noisy(random.random), 8, num_workers=2))
    return training(lambda w: (next(batches) * w).sum())


def workers_own_generators():
    torch.manual_seed(0)
    draw = lambda: np.random.default_rng().random()  # noqa: E731
    batches = batches_of(DataLoader(Noisy(draw), 8, num_workers=2))
    return training(lambda w: (next(batches) * w).float().sum())


MANY = 1000 * torch.sin(torch.arange(1024.0)).reshape(64, 16)


def from_outside(n):
    """A number that nothing holds."""
    return hash((dt.datetime.now().microsecond, n))


class Racing(torch.autograd.Function):
    """Sums whose order the system decides."""

    @staticmethod
    def forward(ctx, values):
        total = values.new_zeros(16)
        for n in sorted(range(64), key=from_outside):
            total = total + values[n]  # - in racing_sum
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(64, 16)


def racing_sum():
    return training(lambda w: Racing.apply(w[0] * MANY).square().sum())


@torch.library.custom_op("planted::total", mutates_args=())
def total_in_any_order(values: torch.Tensor) -> torch.Tensor:
    """As an operator whose threads add in the order in which they come."""
    total = values.new_zeros(16)
    for n in sorted(range(64), key=from_outside):
        total += values[n]
    return total


total_in_any_order.register_autograd(lambda ctx, grad: grad.expand(64, 16))


def racing_operator():
    return training(lambda w: total_in_any_order(w[0] * MANY).square().sum())  # -


# -- the same twice --------------------------------------------------------------------------------


def alike_seeded():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 4), nn.Dropout(), nn.Linear(4, 1))
    return training(lambda *_: model(X).square().mean(), model.parameters())


def alike_seeded_inside():
    def loss(w):
        torch.manual_seed(7)
        random.seed(7)
        return (torch.rand(8) * w).sum() * random.random()

    return training(loss)


def alike_timed():
    seen = []

    def loss(w):
        began = time.perf_counter()
        total = (X * w).sum()
        seen.append(torch.tensor(time.perf_counter() - began) * 1000)
        print("ms", seen[-1].item(), dt.datetime.now())
        if os.urandom(1)[0] > 127:
            print("mean", X.mean().item())
        return total

    return training(loss)


def alike_name_drawn():
    name = f"run-{random.random()}-{np.random.rand()}-{torch.rand(1).item()}"  # noqa: NPY002
    return training(lambda w: (X * w).sum() if name else w.sum())


def alike_sorted_set():
    def loss(w):
        total = torch.zeros(())
        for n, word in enumerate(sorted({*WORDS})):
            total = total + (w * len(word) * n).sum()
        return total

    return training(loss)


def alike_memory_as_it_was():
    def loss(w):
        held = torch.empty(4096)
        torch.empty(4096).fill_(random.random())
        mask = torch.arange(4096) % 2 == 0
        held[mask] = 1.0
        held[~mask] = 2.0
        return (held.sum() * w).sum()

    return training(loss)


def alike_workers():
    torch.manual_seed(0)
    batches = batches_of(DataLoader(Noisy(random.random), 8, shuffle=True, num_workers=2))
    return training(lambda w: (next(batches) * w).sum())


def alike_thread():
    threading.Thread(target=lambda: torch.rand(8).sum(), daemon=True).start()
    torch.manual_seed(0)
    return training(lambda w: (w * X).sum())


def alike_resumes():
    kept = nn.Parameter(torch.ones(8))
    if os.path.exists("kept.pt"):
        kept.data.copy_(torch.load("kept.pt"))
    inner = training(lambda w: (w * X).sum(), [kept])

    def step():
        inner()
        torch.save(kept.detach(), "kept.pt")

    return step
