"""The way in: variables that let a child process run on the null device."""

from __future__ import annotations

import os
from pathlib import Path

from auditor.extensions.nulldevice.build import NullDevice, null_device
from auditor.extensions.nulldevice.found import cuda_build
from auditor.extensions.nulldevice.kernel_table import kept_table
from auditor.model.gpus import Gpu, gpu_named
from auditor.runs.null_variables import PREFIX


def environment(
    gpu: str | Gpu = "H100",
    devices: int = 1,
    *,
    memory_bytes: int | None = None,
    unanswered: Path | None = None,
    site: Path | None = None,
) -> dict[str, str]:
    """Variables for a child process whose torch is to find ``devices`` GPUs of that model; they
    extend what ``os.environ`` has.

    ``memory_bytes`` replaces the model's memory; ``unanswered`` is a file to which the child's
    processes append the name of each function that they called and that the null device does not
    answer; ``site`` is the site-packages folder of the child's torch, where it is not this
    Python's. The null device is built first where it is not kept yet; AuditProblem where there is
    no CUDA build of torch or no C compiler.
    """
    model = gpu if isinstance(gpu, Gpu) else gpu_named(gpu)
    setting = model.setting + (f";memory={memory_bytes}" if memory_bytes is not None else "")
    build = cuda_build(site)
    device = null_device(build)
    major, minor = model.capability
    kernels = kept_table(build.site, 10 * major + minor, device.folder)
    return variables(device, setting, devices, unanswered) | (
        {f"{PREFIX}KERNELS": str(kernels)} if kernels else {}
    )


def variables(
    device: NullDevice, setting: str, devices: int, unanswered: Path | None = None
) -> dict[str, str]:
    """The variables for a null device that is built."""
    folder = str(device.folder)
    found = {
        "LD_PRELOAD": _before("LD_PRELOAD", str(device.library)),
        "LD_LIBRARY_PATH": _before("LD_LIBRARY_PATH", folder),
        "TRITON_LIBCUDA_PATH": folder,
        f"{PREFIX}GPU": setting,
        f"{PREFIX}COUNT": str(devices),
    }
    if unanswered is not None:
        found[f"{PREFIX}UNANSWERED"] = str(unanswered)
    return found


def _before(variable: str, value: str) -> str:
    rest = [part for part in os.environ.get(variable, "").split(":") if part and part != value]
    return ":".join([value, *rest])
