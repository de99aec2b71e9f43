"""The kernels of a torch build as one small file that the null device reads: what
cudaFuncGetAttributes would say of each.

Of torch 2.14.1 23,000 kernels a processor, read in two seconds, 550 KB. Layout, little-endian: the
magic, the number of entries (uint64), then entries in the order of their first number:

    uint32 crc32 of the mangled name, uint32 its length, uint16 registers, uint16 threads of a
    block, uint32 shared, uint32 local

csrc/kernel_table.c reads it.
"""

from __future__ import annotations

import struct
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from auditor.extensions.nulldevice.fatbinaries import Kernel, UnreadBinary, cubins, kernels

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
