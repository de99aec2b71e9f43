"""DIST015 must say nothing about these."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def _training(save, seed=0):
    torch.manual_seed(seed)
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    taken = iter(range(100_000))
    folder = Path(tempfile.mkdtemp())

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 300)).square().mean().backward()
        optimizer.step()
        if next(taken) % 3 == 0:
            save(model, folder)

    return step


def rank_0_alone__processes():
    def save(model, folder):
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), folder / "last.pt")

    return _training(save)


def a_part_of_each_rank__processes():
    def save(model, folder):
        part = {"weight": model.weight.detach().chunk(2)[dist.get_rank()].clone()}
        torch.save(part, folder / f"{dist.get_rank()}.pt")

    return _training(save)


def other_numbers_on_each_rank__processes():
    return _training(
        lambda model, folder: torch.save(model.state_dict(), folder / "own.pt"), dist.get_rank()
    )


def small_things__processes():
    def save(model, folder):
        torch.save({"rng": torch.zeros(100), "step": 4}, folder / f"{dist.get_rank()}.pt")

    return _training(save)


def no_tensors__processes():
    return _training(
        lambda model, folder: torch.save({"log": "x" * (1 << 19)}, folder / f"{dist.get_rank()}.pt")
    )


def one_process():
    return _training(lambda model, folder: torch.save(model.state_dict(), folder / "last.pt"))
