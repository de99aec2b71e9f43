"""The device that is played now, and what every part of it needs: its listeners, and the memory in
use.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, Literal, NoReturn

import torch

from auditor.capture.instruments.storages import storages
from auditor.capture.instruments.torch_private.autograd import running_backward
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.errors import AuditProblem
from auditor.model.gpus import GPUS

Direction = Literal["h2d", "d2h"]


@dataclass(frozen=True)
class GpuModel:
    """The one GPU that the program sees."""

    name: str
    total_bytes: int
    capability: tuple[int, int]
    processors: int


DEFAULT_GPU: Final = "H200"

MODELS: Final = tuple(
    GpuModel(gpu.name, gpu.memory_bytes, gpu.capability, gpu.processors)
    for gpu in sorted(GPUS, key=lambda gpu: gpu.key != DEFAULT_GPU)
)
"""The null device's cards, by the name that the driver gives them; the default is the first."""


@dataclass(frozen=True)
class Crossing:
    """One time that host and device met."""

    kind: str
    """As in the part ``reads`` (docs/recording.md); or ``copy``, ``synchronize``, ``allocator``."""
    direction: Direction | None
    nbytes: int
    """Bytes that cross the bus; 0 if nothing but the wait does."""
    pinned: bool
    """The host's side of a copy is page-locked."""
    blocking: bool
    """The host waits on real CUDA."""
    operator: str
    """The operator (``aten::nonzero``) or the API (``Tensor.to``, ``GradScaler.step``)."""
    constant: bool = False
    """A host-to-device copy of numbers written in Python."""
    subject: Any = field(default=None, compare=False, repr=False)
    """The host tensor that is copied to the device; None for anything else."""


class Listener:
    """Hears what happens, synchronously and inside the caller's stack. Override what you need."""

    tracks_memory: bool = False
    """Ask for :meth:`allocated` and :meth:`freed`; otherwise storages are not followed."""

    memory: Any = None
    """An allocator that answers the memory functions of ``torch.cuda``, with what
    :class:`auditor.capture.shadow.facade.LiveBytes` has; None: as much is reserved as lives.
    """

    def crossing(self, crossing: Crossing) -> None:
        """Host and device met."""

    def allocated(self, storage_id: int, nbytes: int) -> None:
        """A storage appeared on the device; ``torch.OutOfMemoryError`` plays a full card."""

    def freed(self, storage_id: int) -> None:
        """A storage that was reported is gone."""

    def workspace(self, nbytes: int) -> None:
        """Torch took a workspace for matrix products, and keeps it."""

    def noted(self, operator: str, said: str) -> None:
        """The program asks for something that is done another way here, with the same result."""

    def limit(self, operator: str, reason: str) -> None:
        """The program asks too much: :class:`ShadowLimit` follows unless you raise another."""


class ShadowLimit(AuditProblem):
    """What was asked for exists on a GPU only; going on would rehearse another program."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator
        self.reason = reason

    def __reduce__(self) -> tuple[type[ShadowLimit], tuple[str, str]]:
        return type(self), (self.operator, self.reason)


KIB, MIB = 1 << 10, 1 << 20

PRODUCTS: Final = frozenset(
    """
    mm addmm addmm_ _addmm_activation bmm baddbmm baddbmm_ mv addmv addmv_ dot vdot _int_mm
    _scaled_mm linalg_solve_triangular triangular_solve
    """.split()
)
"""Operators that ask for a cuBLAS handle (aten/src/ATen/native/cuda/Blas.cpp, LinearAlgebra)."""

HOPPER: Final = 32 * MIB
"""The default where the capability is 9.0 or more (pytorch/pytorch#89027, #175344)."""
OTHERS: Final = (2 * 4096 + 8 * 16) * KIB
"""The default elsewhere, ``:4096:2:16:8``: 8.125 MiB."""

VERSION: Final = tuple(map(int, torch.__version__.split(".")[:2]))
"""Torch's. Only the shadow decides by it, about kernels in C++ that a build for the CPU has not."""

_FREED_SINCE: Final = (2, 15)
"""A workspace is taken for each product and freed."""


def cublas_bytes(capability: tuple[int, int]) -> int:
    """A workspace of cuBLAS: ``CUBLAS_WORKSPACE_CONFIG`` or ``parseChosenWorkspaceSize``."""
    said = re.findall(r":([0-9]+):([0-9]+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if said:
        return sum(int(size) * KIB * int(count) for size, count in said)
    return HOPPER if capability >= (9, 0) else OTHERS


class Workspaces:
    """Takes what cuBLAS keeps: once for the program and once for its backward, on each stream."""

    def __init__(self, capability: tuple[int, int], take: Callable[[int], None]) -> None:
        self._size = cublas_bytes(capability)
        self._take = take
        self._taken: set[tuple[bool, int]] = set()

    def use(self, args: list[Any], stream: int) -> None:
        """A product of :data:`PRODUCTS` runs on that stream, with these arguments."""
        if any(isinstance(each, torch.Tensor) and not each.numel() for each in args):
            return  # nothing is computed
        handle = running_backward() != -1, stream
        if handle not in self._taken and self._size and VERSION < _FREED_SINCE:
            self._taken.add(handle)
            self._take(self._size)


CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Here(threading.local):
    """What this thread is doing."""

    function: Any = None
    """The torch function called with shadow tensors; None in the autograd engine and outside."""
    quiet: bool = False
    """Reads now are not the device's: CUDA does not make them, or the crossing was told."""
    constant: bool = False
    """The index or value being sent was written as Python numbers."""
    saved: set[int] | None = None
    """Storages that the ``torch.save`` under way has written; None outside of it."""


HERE = Here()


class Current:
    """State of one rehearsal; :data:`PLAYING` is the one that runs."""

    def __init__(self, listener: Listener, gpu: GpuModel) -> None:
        self.listener = listener
        self.gpu = gpu
        self.process = os.getpid()
        self.held: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.live_bytes = 0
        self.peak_bytes = 0
        self.operators = 0
        self.workspaces = Workspaces(gpu.capability, listener.workspace)

    def track(self, tensor: torch.Tensor) -> None:
        """Report the storages of ``tensor`` that are new, and their end when it comes."""
        for storage in storages(tensor):
            if key_of(storage) not in self.held:
                self._hold(storage)

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key = key_of(storage)
        size = storage.nbytes()
        self.listener.allocated(key, size)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.held[key] = weakref.ref(storage, lambda _: self._free(key)), size

    def _free(self, key: int) -> None:
        _, size = self.held.pop(key)
        self.live_bytes -= size
        if PLAYING[0] is self:
            self.listener.freed(key)


PLAYING: list[Current | None] = [None]
"""One slot: whose tensors survive their rehearsal, they go on computing, without a report."""


def tell(
    kind: str,
    operator: str,
    nbytes: int = 0,
    direction: str | None = None,
    *,
    pinned: bool = False,
    blocking: bool = True,
    constant: bool = False,
    subject: torch.Tensor | None = None,
) -> None:
    """Report a crossing, unless no listener is there or this thread is inside a reported one."""
    playing = PLAYING[0]
    if playing is None or HERE.quiet or playing.process != os.getpid():
        return
    way: Any = direction
    crossing = Crossing(kind, way, nbytes, pinned, blocking, operator, constant, subject)
    playing.listener.crossing(crossing)


def note(operator: str, said: str) -> None:
    """Say that something is done another way than asked for."""
    if PLAYING[0] is not None:
        PLAYING[0].listener.noted(operator, said)


def refuse(operator: str, reason: str) -> NoReturn:
    """End the rehearsal: the program asks for what only a real device can do."""
    if PLAYING[0] is not None:
        PLAYING[0].listener.limit(operator, reason)
    raise ShadowLimit(operator, reason)


def must_be_the_process() -> None:
    """Raise what CUDA raises in a forked worker."""
    playing = PLAYING[0]
    if playing is not None and playing.process != os.getpid():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        )


def caller() -> FrameType | None:
    """The innermost frame that is not this room's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame
