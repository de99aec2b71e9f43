"""The device that is played now, and what its parts need: its listeners, the memory in use."""

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
from auditor.capture.instruments.torch_private.autograd import (
    current_node,
    next_number,
    number_of,
    running_backward,
)
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

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        """Torch took a workspace for matrix products; one that is not kept it gave back at once."""

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

WITH_BIAS: Final = frozenset({"addmm", "_addmm_activation"})
"""Those that torch gives to cuBLASLt where the bias is one row (Blas.cpp)."""

HOPPER: Final = 32 * MIB
"""The default where the capability is 9.0 (pytorch/pytorch#89027); from torch 2.12 on above it as
well (#175344: 10 and 12, #189312: 11).
"""
OTHERS: Final = (2 * 4096 + 8 * 16) * KIB
"""The default elsewhere, ``:4096:2:16:8``: 8.125 MiB."""
LT: Final = 1024 * KIB
"""cuBLASLt's where it does not share cuBLAS' (pytorch/pytorch#73328)."""

VERSION: Final = tuple(map(int, torch.__version__.split(".")[:2]))
"""Torch's. Only the shadow decides by it, about kernels in C++ that a build for the CPU has not."""

_SHARED_SINCE: Final = (2, 11)
"""cuBLASLt uses cuBLAS' workspace unless told otherwise (pytorch/pytorch#168175, January 2026)."""
_KEPT_SINCE: Final = (2, 9)
"""A workspace is kept for each handle and stream, not for a call (pytorch/pytorch#156495)."""
_BLACKWELL_SINCE: Final = (2, 12)
_FREED_SINCE: Final = (2, 15)
"""A workspace is taken for each product and freed, and cuBLASLt has its own again, unless
``TORCH_CUBLAS_WORKSPACE_CACHE`` is set (seen on the null device).
"""


def cublas_bytes(capability: tuple[int, int], version: tuple[int, ...]) -> int:
    """A workspace of cuBLAS: ``CUBLAS_WORKSPACE_CONFIG`` or ``parseChosenWorkspaceSize``."""
    said = re.findall(r":([0-9]+):([0-9]+)", os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""))
    if said:
        return sum(int(size) * KIB * int(count) for size, count in said)
    large = capability == (9, 0) or (capability >= (10, 0) and version >= _BLACKWELL_SINCE)
    return HOPPER if large else OTHERS


def freed(version: tuple[int, ...]) -> bool:
    """Whether that torch keeps no workspace between products."""
    return version >= _FREED_SINCE and os.environ.get("TORCH_CUBLAS_WORKSPACE_CACHE") != "1"


def lt_bytes(version: tuple[int, ...]) -> int:
    """A workspace that cuBLASLt has to itself; 0 where it uses that of cuBLAS."""
    said = os.environ.get("TORCH_CUBLASLT_UNIFIED_WORKSPACE")
    if said == "1" or (said is None and version >= _SHARED_SINCE and not freed(version)):
        return 0
    size = os.environ.get("CUBLASLT_WORKSPACE_SIZE", "")
    return int(size) * KIB if size.isdecimal() else LT


class _Handle:
    """A number that goes back to the pool with the thread that had it."""

    def __init__(self, pool: list[int], number: int) -> None:
        self._pool, self.number = pool, number

    def __del__(self) -> None:
        self._pool.append(self.number)


AUTOGRAD: Final = -1
"""The handle of the thread in which CUDA's gradients are computed."""


class Workspaces:
    """Takes each workspace once. ``take(bytes, kept)``: if not kept it goes back at once."""

    def __init__(self, capability: tuple[int, int], take: Callable[[int, bool], None]) -> None:
        self._size, self._lt_size = cublas_bytes(capability, VERSION), lt_bytes(VERSION)
        self._lt_kept, self._freed = VERSION >= _KEPT_SINCE, freed(VERSION)
        self._take = take
        self._streams: dict[int, int] = {}
        self._taken: set[tuple[str, int, int]] = set()
        self._pool: list[int] = []
        self._handles = 0
        self._local = threading.local()

    def use(self, name: str, args: list[Any], stream: int) -> None:
        """A product of :data:`PRODUCTS` runs on that stream, with these arguments."""
        if any(isinstance(each, torch.Tensor) and not each.numel() for each in args):
            return  # nothing is computed
        own = self._lt_size if name in WITH_BIAS and args[0].dim() == 1 else 0
        if self._freed:
            self._take(own or self._size, False)
            return
        handle, stream = self._handle(), self._stream(stream)
        self._once("cublas", handle, stream, self._size)
        if own and self._lt_kept:
            self._once("cublasLt", handle, stream, own)
        elif own:
            self._take(own, False)

    def _once(self, library: str, handle: int, stream: int, size: int) -> None:
        if size and (library, handle, stream) not in self._taken:
            self._taken.add((library, handle, stream))
            self._take(size, True)

    def _stream(self, stream: int) -> int:
        """A gradient is computed on the stream of what it is the gradient of: products on other
        streams than the default one are known by their nodes' numbers.
        """
        if running_backward() == -1:
            if stream:
                self._streams[next_number() - 1] = stream
            return stream
        node = current_node() if self._streams else None
        return stream if node is None else self._streams.get(number_of(node), stream)

    def _handle(self) -> int:
        if running_backward() != -1:
            return AUTOGRAD
        held: _Handle | None = getattr(self._local, "handle", None)
        if held is None:
            number = self._pool.pop() if self._pool else self._handles
            self._handles += number == self._handles
            held = self._local.handle = _Handle(self._pool, number)
        return held.number


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
        self.workspaces = Workspaces(
            gpu.capability, lambda nbytes, kept: listener.workspace(nbytes, kept=kept)
        )

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
