"""The way in: variables that let a child process run on the null device."""

from __future__ import annotations

import ctypes
import ctypes.util
import mmap
import os
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from torch_null_device.build import NullDevice, null_device
from torch_null_device.found import cuda_build
from torch_null_device.gpus import Gpu, gpu_named
from torch_null_device.variables import PREFIX

# -- fatbinaries -----------------------------------------------------------------------------------
# Compiled kernels in a library of torch: their registers, shared memory and launch bounds, read
# from its fat binaries.
#
# nvcc puts the machine code of all kernels of a source file into one fat binary of the section
# `.nv_fatbin`: a header, then an entry for each processor, an ELF file that is packed with zstd (CUDA
# 13) or LZ4 (CUDA 12). `.nv.info` of that ELF file holds the numbers that the driver answers to
# cudaFuncGetAttributes. NVIDIA does not describe these formats; the layout is that which its own
# cuobjdump prints, and a fat binary that is laid out otherwise ends the reading (UnreadBinary).

FAT_BINARY = 0xBA55ED50
ELF_ENTRY = 2
LZ4, ZSTD = 0x2000, 0x8000
MAX_THREADS, EXTERNS, FRAME_SIZE, REGISTERS = 0x05, 0x0F, 0x11, 0x2F
"""EIATTR_MAX_THREADS, EIATTR_EXTERNS, EIATTR_FRAME_SIZE and EIATTR_REGCOUNT of `.nv.info`."""
SYMBOL_BYTES = 24
LEAST_REGISTERS, LEAST_WITH_CALLS = 16, 32
"""What the driver gives a thread at least, and where a kernel calls into the driver (a device-side
assert): so in every trace of a GPU since Volta in our collection, and kernel by kernel in the three
of an H100 (README.md)."""
RESERVED_SHARED = 1024
"""Bytes of a block that the driver keeps for itself since Hopper: they stand in `.nv.shared` and
are not the kernel's.
"""
SIZED = 4
"""EIFMT_SVAL: the attribute's value follows, and its header tells how long it is. All others take 4
bytes as a whole.
"""


class UnreadBinary(Exception):
    """A fat binary is laid out otherwise than we know, or nothing here unpacks it; the message says
    which.
    """


@dataclass(frozen=True, slots=True)
class Section:
    """One section of an ELF file: its name, its place in the file (bytes) and the number of the
    section it links to.
    """

    name: bytes
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """What the driver would say of a kernel: registers of a thread, shared memory and local memory
    in bytes, threads of a block.
    """

    registers: int
    shared: int
    local: int
    threads: int


def sections(elf: bytes | mmap.mmap) -> list[Section]:
    """The sections of a 64-bit ELF file."""
    table, width, number, names = (
        *struct.unpack_from("<Q", elf, 40),
        *struct.unpack_from("<HHH", elf, 58),
    )
    entries = [struct.unpack_from("<IIQQQQI", elf, table + at * width) for at in range(number)]
    texts = entries[names][4]
    return [
        Section(_text(elf, texts + entry[0]), entry[4], entry[5], entry[6]) for entry in entries
    ]


def _text(data: bytes | mmap.mmap, start: int) -> bytes:
    return data[start : data.find(b"\0", start)]


def cubins(library: Path, processor: int) -> Iterator[bytes]:
    """The unpacked ELF files that a processor (90 of capability 9.0) would load from a library.
    Raises UnreadBinary.

    A processor runs code for its own capability or for an older one of the same major number: 8.9
    loads what is for 8.6.
    """
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
        for section in sections(data):
            if section.name == b".nv_fatbin":
                yield from _of_section(data, section, processor)


def _of_section(data: mmap.mmap, section: Section, processor: int) -> Iterator[bytes]:
    at, end = section.offset, section.offset + section.size
    while at + 16 <= end:
        magic, _version, header, size = struct.unpack_from("<IHHQ", data, at)
        # fat binaries begin at multiples of 8 bytes, with zeros between them
        if magic != FAT_BINARY:
            at += 8
            continue
        yield from _of_binary(data, at + header, at + header + size, processor)
        at += header + size


def _of_binary(data: mmap.mmap, at: int, end: int, processor: int) -> Iterator[bytes]:
    """Those of one fat binary."""
    entries: dict[int, list[tuple[int, int, int, int]]] = {}
    while at + 64 <= end:
        kind, _version, header, padded, packed = struct.unpack_from("<HHIQI", data, at)
        (number,) = struct.unpack_from("<I", data, at + 28)
        flags, _, whole = struct.unpack_from("<QQQ", data, at + 40)
        if not header:
            raise UnreadBinary("an entry of a fat binary has a header of no length")
        if kind == ELF_ENTRY and number // 10 == processor // 10 and number <= processor:
            entries.setdefault(number, []).append((at + header, packed or padded, flags, whole))
        at += header + padded
    for start, length, flags, whole in entries[max(entries)] if entries else ():
        yield _unpacked(data[start : start + length], flags, whole)


def _library(name: str, function: str) -> Callable[..., int]:
    found = ctypes.util.find_library(name)
    if found is None:
        raise UnreadBinary(f"kernels are packed with {name}, and this machine has no lib{name}")
    call = getattr(ctypes.CDLL(found), function)
    call.restype = ctypes.c_size_t if name == "zstd" else ctypes.c_int
    return call  # type: ignore[no-any-return]


def _unpacked(content: bytes, flags: int, whole: int) -> bytes:
    if not flags & (LZ4 | ZSTD):
        return content
    into = ctypes.create_string_buffer(whole)
    if flags & ZSTD:
        call, length = _library("zstd", "ZSTD_decompress"), ctypes.c_size_t
        written = call(into, length(whole), content, length(len(content)))
    else:
        written = _library("lz4", "LZ4_decompress_safe")(content, into, len(content), whole)
    if written != whole:
        raise UnreadBinary("a fat binary does not unpack")
    return into.raw


def kernels(elf: bytes, processor: int) -> dict[bytes, Kernel]:
    """The kernels of an unpacked ELF file by their mangled names."""
    found = {section.name: section for section in sections(elf)}
    numbers = _numbers(elf, found)
    reserved = RESERVED_SHARED if processor >= 90 else 0
    made: dict[bytes, Kernel] = {}
    for name, registers in numbers[REGISTERS].items():
        about = found.get(b".nv.info." + name)
        if about is not None:  # functions that kernels call have registers too, and no parameters
            least, threads = _limits(elf, about)
            shared = found.get(b".nv.shared." + name)
            bytes_shared = max(0, shared.size - reserved) if shared else 0
            made[name] = Kernel(
                max(registers, least), bytes_shared, numbers[FRAME_SIZE].get(name, 0), threads
            )
    return made


def _numbers(elf: bytes, found: dict[bytes, Section]) -> dict[int, dict[bytes, int]]:
    """Registers and frame sizes by function, from `.nv.info`: pairs of a symbol's number and a
    value.
    """
    numbers: dict[int, dict[bytes, int]] = {REGISTERS: {}, FRAME_SIZE: {}}
    symbols, texts, about = (found.get(name) for name in (b".symtab", b".strtab", b".nv.info"))
    if symbols is None or texts is None or about is None:
        return numbers
    for attribute, value in _attributes(elf, about):
        if attribute in numbers and len(value) == 8:
            symbol, number = struct.unpack("<II", value)
            (name,) = struct.unpack_from("<I", elf, symbols.offset + SYMBOL_BYTES * symbol)
            numbers[attribute][_text(elf, texts.offset + name)] = number
    return numbers


def _limits(elf: bytes, section: Section) -> tuple[int, int]:
    """The registers that the driver gives at least, and the threads that a block may have."""
    about = dict(_attributes(elf, section))
    least = LEAST_WITH_CALLS if EXTERNS in about else LEAST_REGISTERS
    if len(about.get(MAX_THREADS, b"")) < 12:
        return least, 1024
    x, y, z = struct.unpack_from("<III", about[MAX_THREADS])
    return least, min(1024, int(x * y * z))


def _attributes(elf: bytes, section: Section) -> Iterator[tuple[int, bytes]]:
    at, end = section.offset, section.offset + section.size
    while at + 4 <= end:
        form, attribute, size = struct.unpack_from("<BBH", elf, at)
        at += 4
        if form == SIZED:
            yield attribute, elf[at : at + size]
            at += size


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
    Python's. The null device is built first where it is not kept yet; NullDeviceProblem where there is
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
