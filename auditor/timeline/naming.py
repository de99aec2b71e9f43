"""Names as the trace spells them: which calls block, launch or allocate, which kernels communicate,
and names to row masks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from auditor.timeline.trace import Codes, Flags

_SUFFIX = re.compile(r"(_v\d{4,5}|_ptsz|_ptds|_spt)+$")
"""CUPTI's API versions: ``cudaLaunchKernel_v7000``, ``cudaStreamSynchronize_ptsz`` (per-thread
default streams).
"""

BLOCKING = frozenset(
    """
    cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize cudaThreadSynchronize
    cudaMemcpy cuStreamSynchronize cuCtxSynchronize cuEventSynchronize hipStreamSynchronize
    hipDeviceSynchronize hipEventSynchronize hipMemcpy hipMemcpyWithStream
    """.split()
)
DEVICE_WIDE = frozenset(
    {"cudaDeviceSynchronize", "cudaThreadSynchronize", "cuCtxSynchronize", "hipDeviceSynchronize"}
)
ALLOCATOR = frozenset(
    """
    cudaMalloc cudaFree cudaHostAlloc cudaFreeHost cudaHostRegister cudaMallocHost cudaMallocAsync
    cudaFreeAsync hipMalloc hipFree hipHostMalloc hipHostFree cuMemCreate cuMemMap cuMemUnmap
    cuMemRelease cuMemSetAccess
    """.split()
)
STREAM_ORDERED = frozenset({"cudaMallocAsync", "cudaFreeAsync"})
"""Calls of these that do not wait: the cudaMallocAsync backend makes them on every allocation by
design.
"""
_LAUNCH = re.compile(
    r"cudaLaunch(Cooperative)?Kernel|cudaLaunchKernelExC|cuLaunchKernel|hipLaunchKernel|hip(Ext)?ModuleLaunchKernel|hipExtLaunchKernel"
)
GRAPH_LAUNCHES = frozenset({"cudaGraphLaunch", "hipGraphLaunch"})
_COMMUNICATION = re.compile(r"(nccl|rccl)", re.IGNORECASE)
STEP_MARK = "ProfilerStep"
BACKWARD_MARK = "autograd::engine::evaluate_function"


def mask(names: Sequence[str], codes: Codes, wanted: Callable[[str], object]) -> Flags:
    """Rows whose name is wanted; each different name is asked about once."""
    known = np.fromiter((bool(wanted(name)) for name in names), np.bool_, len(names))
    return known[codes] if known.any() else np.zeros(len(codes), np.bool_)


def plain(call: str) -> str:
    """A runtime call's name without the API version that CUPTI appends."""
    return _SUFFIX.sub("", call)


def is_blocking(call: str) -> bool:
    """Whether the host is held until the device has got there, whatever the arguments are."""
    return plain(call) in BLOCKING


def is_async_copy(call: str) -> bool:
    """Whether the call is an asynchronous copy; with pageable memory it blocks none the less."""
    return "emcpyAsync" in call


def is_launch(call: str) -> bool:
    """Whether the call launches one kernel."""
    return _LAUNCH.match(call) is not None


def is_communication(kernel: str) -> bool:
    """Whether the kernel is a collective's, or a send or receive."""
    return _COMMUNICATION.match(kernel) is not None


def is_step(name: str) -> bool:
    """``ProfilerStep#7``, as torch.profiler.profile.step() writes it(rarely ``ProfilerStep*``)."""
    return name.startswith(STEP_MARK)


def is_loading(name: str) -> bool:
    """``enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__``: a wait for a batch."""
    return name.startswith("enumerate") and "DataLoader" in name
