"""The null device, which runs torch's own CUDA code without a GPU: the distribution
torch-null-device of this repository (``nulldevice/``), used where it is installed.
"""

import os
from collections.abc import Mapping
from types import ModuleType

from auditor.errors import AuditProblem, TargetProblem

INSTALL = "pip install ./nulldevice, in a checkout of torch-step-audit"


def lacking() -> AuditProblem | None:
    """Why there is no null device here, in a sentence with the way out; None if it can be."""
    try:
        import torch_null_device
    except ImportError:
        return AuditProblem("torch-null-device is not installed", INSTALL)
    problem = torch_null_device.lacking()
    return None if problem is None else AuditProblem(problem.message, problem.hint)


def environment(gpu: str, devices: int = 1, memory_bytes: int | None = None) -> dict[str, str]:
    """Variables for a child process whose torch is to find ``devices`` GPUs of that model.

    Raises :class:`AuditProblem` if there can be no null device.
    """
    try:
        import torch_null_device
    except ImportError:
        raise AuditProblem("torch-null-device is not installed", INSTALL) from None
    try:
        return torch_null_device.environment(gpu, devices, memory_bytes=memory_bytes)
    except torch_null_device.NullDeviceProblem as problem:
        raise AuditProblem(problem.message, problem.hint, problem.detail) from problem


def without(surroundings: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child that must not be on our null device."""
    try:
        import torch_null_device
    except ImportError:
        return dict(surroundings)
    return torch_null_device.without_null_device(surroundings)


def watching() -> ModuleType | None:
    """The log of this process's null device (``torch_null_device.watching``); None without one.

    Raises :class:`TargetProblem` if the device cannot be asked: its times are not a GPU's.
    """
    try:
        from torch_null_device import watching as watch
    except ImportError:
        if "NULLDEVICE_GPU" in os.environ:
            raise TargetProblem(
                "this process is on a null device, and its Python has no torch-null-device", INSTALL
            ) from None
        return None
    return watch if watch.running() else None
