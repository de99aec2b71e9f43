"""What torch's own libraries say of their kernels, against their sources and against traces of real
GPUs.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
import torch

from torch_null_device.environment import (
    MAGIC,
    Kernel,
    UnreadBinary,
    cubins,
    packed,
    read_kernels,
)

SITE = Path(torch.__file__).parent.parent
LIBRARIES = sorted(SITE.glob("torch/lib/libtorch_cuda*.so"))


@pytest.fixture(scope="module", params=[80, 90])
def known(request) -> dict[bytes, Kernel]:
    return read_kernels(LIBRARIES, request.param)


def of(known: dict[bytes, Kernel], *parts: bytes) -> list[Kernel]:
    found = [kernel for name, kernel in known.items() if all(part in name for part in parts)]
    assert len(found) > 10
    return found


def test_launch_bounds_are_those_of_the_source(known):
    """Loops.cuh: C10_LAUNCH_BOUNDS_1(num_threads()), four warps; Reduce.cuh:
    C10_LAUNCH_BOUNDS_2(nt, 4), its first argument.
    """
    assert {
        kernel.threads for kernel in of(known, b"at6native29vectorized_elementwise_kernelILi4")
    } == {128}
    assert {kernel.threads for kernel in of(known, b"at6native13reduce_kernelILi512ELi1E")} == {512}
    assert {kernel.threads for kernel in of(known, b"at6native13reduce_kernelILi128ELi4E")} == {128}


def test_shared_memory_is_that_of_real_traces(known):
    """16 bytes in traces of an A100 and of an H100, whose own 1024 bytes of each block are not the
    kernel's; no loop has any.
    """
    assert {kernel.shared for kernel in of(known, b"at6native13reduce_kernelILi512ELi1E")} == {16}
    assert {
        kernel.shared for kernel in of(known, b"at6native29vectorized_elementwise_kernelILi4")
    } == {0}


def test_registers_are_what_a_processor_can_give(known):
    assert all(16 <= kernel.registers <= 255 for kernel in known.values())
    assert all(kernel.registers * min(kernel.threads, 128) <= 65536 for kernel in known.values())
    assert len({kernel.registers for kernel in known.values()}) > 50


def test_a_processor_loads_code_of_its_own_major_number():
    """8.9 (L4, RTX 4090) runs what is compiled for 8.6 but for the few that torch compiles for it
    (fp8 products).
    """
    older, newer = (
        read_kernels(LIBRARIES, 86),
        read_kernels(LIBRARIES, 89),
    )
    assert older.keys() == newer.keys()
    others = [name for name, kernel in newer.items() if older[name] != kernel]
    assert all(b"sm89" in name for name in others)
    assert len(others) < 0.01 * len(newer)
    assert not list(cubins(LIBRARIES[0], 20))


def test_the_table_holds_each_kernel(known, tmp_path):
    data = packed(known)
    magic, many = struct.unpack_from("<8sQ", data)
    assert (magic, len(data)) == (MAGIC, 16 + 20 * many)
    assert len(known) - 10 < many <= len(known), (
        "names with one sum and length are left out where their kernels differ"
    )
    entries = {
        struct.unpack_from("<II", data, at): struct.unpack_from("<HHII", data, at + 8)
        for at in range(16, len(data), 20)
    }
    assert list(entries) == sorted(entries), "csrc/kernel_table.c searches it by halves"
    name, kernel = next(
        (name, kernel) for name, kernel in known.items() if b"GeluCUDAKernelImpl" in name
    )
    assert entries[zlib.crc32(name), len(name)] == (
        kernel.registers,
        kernel.threads,
        kernel.shared,
        kernel.local,
    )


def test_what_is_laid_out_otherwise_is_said(tmp_path):
    """A library whose fat binary's first entry has no header."""
    whole = LIBRARIES[-1].read_bytes()
    at = whole.index(struct.pack("<I", 0xBA55ED50))
    header = struct.unpack_from("<H", whole, at + 6)[0]
    spoiled = bytearray(whole)
    spoiled[at + header + 4 : at + header + 8] = bytes(4)
    path = tmp_path / "libspoiled.so"
    path.write_bytes(spoiled)
    with pytest.raises(UnreadBinary, match="header of no length"):
        list(cubins(path, 90))
