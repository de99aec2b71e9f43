"""A process group of several ranks in one process: every other rank has what this one has, and
answers at once.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

NAME = "echo"


class _Done(dist.Work):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self._future: torch.futures.Future[Any] = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        return self._future


class _Echo(dist.ProcessGroup):
    """A sum over ranks is left as it is: DDP divides before it sums, and the mean of equal
    gradients is one of them.
    """

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)
        self._size = size

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return NAME

    def allreduce(self, tensors: list[torch.Tensor], options: Any = None) -> dist.Work:
        for tensor in tensors:
            tensor.mul_(self._size)
        return _Done(tensors)

    def allgather(
        self, outputs: list[list[torch.Tensor]], inputs: list[torch.Tensor], options: Any = None
    ) -> dist.Work:
        for each, own in zip(outputs, inputs, strict=True):
            for output in each:
                output.copy_(own)
        return _Done(outputs)

    def broadcast(self, tensors: list[torch.Tensor], options: Any = None) -> dist.Work:
        return _Done(tensors)

    def reduce(self, tensors: list[torch.Tensor], options: Any = None) -> dist.Work:
        return self.allreduce(tensors)

    def barrier(self, opts: Any = None) -> dist.Work:
        return _Done(None)


def ranks(size: int = 2, rank: int = 0) -> None:
    """The process is this rank of ``size`` from now on, if it is no rank yet."""
    if dist.is_initialized():
        return
    if not hasattr(dist.Backend, NAME.upper()):
        dist.Backend.register_backend(
            NAME, lambda store, rank, size, timeout: _Echo(rank, size), devices=["cpu"]
        )
    dist.init_process_group(NAME, store=dist.HashStore(), rank=rank, world_size=size)


@contextlib.contextmanager
def as_rank(rank: int, size: int = 2) -> Iterator[None]:
    """Inside, the process is this rank."""
    if dist.is_initialized():
        dist.destroy_process_group()
    ranks(size, rank)
    try:
        yield
    finally:
        dist.destroy_process_group()
