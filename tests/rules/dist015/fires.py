"""DIST015 must name the marked lines."""

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


def each_rank_into_a_file_of_its_own__processes():
    rank = dist.get_rank()

    def save(model, folder):
        state = {"model": model.state_dict(), "epoch": 3}
        torch.save(state, folder / f"{rank}.pt")  # DIST015

    return _training(save)


def all_ranks_into_one__processes():
    def save(model, folder):
        path = Path(tempfile.gettempdir()) / "audit-dist015-last.pt"
        torch.save([model.state_dict()], path)  # DIST015
        path.unlink()

    return _training(save)
