"""Programs whose profiler traces lie in ``data``: ``python traces.py NAME FOLDER``.

SOURCES.md says which build of torch each needs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

STEPS = schedule(wait=1, warmup=1, active=4, repeat=1)


class Slow(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that take 2 ms each, as a decoder of pictures does."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(0.002)
        return torch.randn(64), torch.tensor(number % 10)


def model(device: str = "cpu") -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)


def cpu_training(out: Path) -> None:
    """``item()`` reads the CPU, where nothing waits; stacks, shapes and memory are recorded."""
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    with profile(
        schedule=STEPS, with_stack=True, record_shapes=True, profile_memory=True
    ) as profiler:
        for _ in range(6):
            loss = nn.functional.cross_entropy(
                net(torch.randn(32, 64)), torch.randint(0, 10, (32,))
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            profiler.step()
    profiler.export_chrome_trace(str(out / "trace.json"))


def cpu_loader(out: Path) -> None:
    """A loop that waits for a loader without workers; the optimizer steps tensor by tensor."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, foreach=False)
    with profile(schedule=STEPS, record_shapes=True) as profiler:
        for samples, labels in DataLoader(Slow(), batch_size=8):
            loss = nn.functional.cross_entropy(net(samples), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(out / "trace.json"))


def gloo_ranks(out: Path) -> None:
    """One of two ranks under ``torchrun``: DistributedDataParallel over gloo, on the CPU."""
    dist.init_process_group("gloo")
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with profile(schedule=STEPS) as profiler:
        for _ in range(6):
            loss = net(torch.randn(32, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    profiler.export_chrome_trace(str(out / f"rank{dist.get_rank()}.json"))
    dist.destroy_process_group()


def cupti_missing(out: Path) -> None:
    """On ``cuda`` without CUPTI: the profiler lists a device and sees none of its kernels."""
    net = model("cuda")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=STEPS
    ) as profiler:
        for _ in range(6):
            loss = net(torch.randn(32, 64).to("cuda")).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            loss.item()
            profiler.step()
    profiler.export_chrome_trace(str(out / "trace.json"))


PROGRAMS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (cpu_training, cpu_loader, gloo_ranks, cupti_missing)
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    os.makedirs(sys.argv[2], exist_ok=True)
    PROGRAMS[sys.argv[1]](Path(sys.argv[2]))
