"""What torch takes of the device's memory for matrix products, beside their results.

aten/src/ATen/cuda/CublasHandlePool.cpp: a thread that multiplies matrices gets a cuBLAS handle, and
each handle on each stream a workspace out of the caching allocator, which torch keeps. Gradients
are computed in a thread of autograd's own, so that most trainings have two. All sizes in bytes;
measured on the null device under torch 2.6.0, 2.8.0 and 2.14.1 (docs/log/gpu-facts.md). What cuDNN,
cuSOLVER and a kernel for itself take is not known here.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.autograd import (
    current_node,
    next_number,
    number_of,
    running_backward,
)

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
"""A workspace of its own is kept for each handle and stream, not for a call
(pytorch/pytorch#156495).
"""
_BLACKWELL_SINCE: Final = (2, 12)
_FREED_SINCE: Final = (2, 15)
"""A workspace is taken for each product and freed, and cuBLASLt has its own again, unless
``TORCH_CUBLAS_WORKSPACE_CACHE`` is set (seen on the null device).
"""


def cublas_bytes(capability: tuple[int, int], version: tuple[int, ...]) -> int:
    """A workspace of cuBLAS on a device of that capability under that torch:
    ``CUBLAS_WORKSPACE_CONFIG`` or torch's default (``parseChosenWorkspaceSize``).
    """
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
