"""The way in: variables that let a child process run on the null device."""

from __future__ import annotations

import os
import struct
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from auditor.extensions.nulldevice.build import NullDevice, null_device
from auditor.extensions.nulldevice.fatbinaries import Kernel, UnreadBinary, cubins, kernels
from auditor.extensions.nulldevice.found import cuda_build
from auditor.model.gpus import Gpu, gpu_named
from auditor.runs.null_variables import PREFIX

# -- kernel table ----------------------------------------------------------------------------------
# The kernels of a torch build as one small file that the null device reads: what
# cudaFuncGetAttributes would say of each.

MAGIC = b"nullkrn1"


def packed(found: dict[bytes, Kernel]) -> bytes:
    """The file's text. Two kernels whose names have one sum and one length, and that differ, are
    both left out.
    """
    entries: dict[tuple[int, int], Kernel | None] = {}
    for name, kernel in found.items():
        key = (zlib.crc32(name), len(name))
        entries[key] = kernel if entries.get(key, kernel) == kernel else None
    kept = [
        (*key, one.registers, one.threads, one.shared, one.local)
        for key, one in sorted(entries.items())
        if one
    ]
    return (
        MAGIC
        + struct.pack("<Q", len(kept))
        + b"".join(struct.pack("<IIHHII", *entry) for entry in kept)
    )


def read_kernels(libraries: Iterable[Path], processor: int) -> dict[bytes, Kernel]:
    """All kernels for a processor (90 of capability 9.0) in these libraries by mangled name. Raises
    UnreadBinary.
    """
    found: dict[bytes, Kernel] = {}
    for library in libraries:
        for elf in cubins(library, processor):
            found.update(kernels(elf, processor))
    return found


def kept_table(site_packages: Path, processor: int, folder: Path) -> Path | None:
    """The table of torch's own libraries, written into `folder` first where it is not there.

    None where the binaries cannot be read: the null device then takes 32 registers for every
    kernel, and no shared memory.
    """
    path = folder / f"kernels-{processor}"
    if path.is_file():
        return path
    try:
        found = read_kernels(sorted(site_packages.glob("torch/lib/libtorch_cuda*.so")), processor)
    except (UnreadBinary, struct.error):
        return None
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(packed(found))
    Path(file.name).replace(path)
    return path


# -- environment -----------------------------------------------------------------------------------


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
