"""The safetensors format: a JSON header that says where each tensor lies, then the bytes."""

from __future__ import annotations

import json
import math
from functools import partial
from itertools import pairwise
from typing import IO, Any, NoReturn

from auditor.evidence.snapshot.unpickle import memory_capped
from auditor.extensions.checkpoints import pickles
from auditor.extensions.checkpoints.container import Container
from auditor.extensions.checkpoints.contents import BYTES, Malformed, Storage, Stored
from auditor.extensions.checkpoints.described import contiguous, is_count, shape_of

HEADER_LIMIT = 100_000_000
"""Bytes of the header at most, as the format's own reader has it."""

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "C64": "complex64",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn_x2",
}
"""dtype by its word in the header; of any other the format's own reader makes no tensor."""

MEMORY_PER_BYTE = 12
"""Bytes of memory that reading the header may take, beyond what any header may; real ones take less
than six.
"""


def looks_like(head: bytes) -> bool:
    """True if the file begins as the format does: the header's length, then an opening brace, if
    need be behind space.
    """
    return (
        head[8:].lstrip(b" \t\r\n").startswith(b"{")
        and 2 <= int.from_bytes(head[:8], "little") <= HEADER_LIMIT
    )


def open_safetensors(file: IO[bytes], size: int) -> Container:
    """Read the header and check that it covers the file. Raises :class:`Malformed`."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if 8 + length > size:
        raise Malformed("it ends inside its header: it was cut off or not written to its end")
    header = _header(file.read(length))
    begin, held = 8 + length, size - 8 - length
    tree: dict[str, Any] = {}
    places: dict[str, tuple[int, int]] = {}
    damage: list[str] = []
    for name, entry in header.items():
        try:
            tree[name], places[name] = _tensor(name, entry, held)
        except Malformed as problem:
            damage.append(f"{name[:80]} {problem}")
    damage += _gaps(places, held) if not damage else []
    return Container(
        "safetensors",
        tree,
        partial(
            _read,
            file,
            {name: (begin + first, begin + end) for name, (first, end) in places.items()},
        ),
        pickles.names_in(file, 0, size),  # under another name torch.load takes it for a pickle
        damage,
    )


def _header(raw: bytes) -> dict[str, Any]:
    try:
        with memory_capped(pickles.MEMORY_AT_LEAST + MEMORY_PER_BYTE * len(raw)):
            header = json.loads(
                raw.decode("utf-8"),
                object_pairs_hook=_once,
                parse_float=_refused,
                parse_constant=_refused,
            )
    except (ValueError, RecursionError):
        raise Malformed("its header is damaged: it is no JSON of the format") from None
    except MemoryError:
        raise Malformed("its header asks for more memory than it can need") from None
    if not isinstance(header, dict):
        raise Malformed("its header is damaged: it is not an object")
    metadata = header.pop("__metadata__", None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(
        isinstance(each, str) for each in metadata.values()
    ):
        raise Malformed("its metadata are more than words")
    return header


def _refused(word: str) -> NoReturn:
    """Numbers of the format are whole."""
    raise ValueError(word)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    for pair in pairs:
        "".join(each for each in pair if isinstance(each, str)).encode()  # no halves of characters
    if len(made) < len(pairs):
        raise Malformed("its header has a name twice")
    return made


def _tensor(name: str, entry: Any, held: int) -> tuple[Stored, tuple[int, int]]:
    described: dict[str, Any] = entry if isinstance(entry, dict) else {}
    shape: Any = described.get("shape")
    ends: Any = described.get("data_offsets")
    if not _counts(shape) or not _counts(ends) or len(ends) != 2 or len(described) != 3:
        raise Malformed("is described wrongly in the header")
    kind = described.get("dtype")
    dtype = DTYPES.get(kind) if isinstance(kind, str) else None
    if dtype is None:
        raise Malformed(f"is of {str(kind)[:20]}, which is no dtype of the format that torch has")
    if kind == "F4":  # two numbers in an element
        if not shape or shape[-1] % 2:
            raise Malformed(f"has two numbers in a byte, and a shape of {shape}")
        shape = [*shape[:-1], shape[-1] // 2]
    (first, end), numel, width = ends, math.prod(shape), BYTES[dtype]
    if first > end:
        raise Malformed("ends before it begins")
    if end > held:
        raise Malformed(
            f"ends {end - held} bytes past the end of the file: it was cut off or not written to "
            "its end"
        )
    if numel * width != end - first:
        raise Malformed(f"has {end - first} bytes, and its shape of {dtype} needs {numel * width}")
    sizes = shape_of(shape, width)
    return Stored(Storage(name, dtype, numel), dtype, 0, sizes, contiguous(sizes)), (first, end)


def _counts(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= 64 and all(map(is_count, value))


def _gaps(places: dict[str, tuple[int, int]], held: int) -> list[str]:
    """The format allows neither gaps nor overlaps."""
    ordered = sorted(places.values())
    if any(after < end for (_, end), (after, _) in pairwise(ordered)):
        return ["two of its tensors overlap"]
    if any(after > end for (_, end), (after, _) in pairwise([(0, 0), *ordered])):
        return ["there are bytes between its tensors that belong to none"]
    end = max((end for _, end in ordered), default=0)
    return [f"{held - end} bytes at its end belong to no tensor"] if end != held else []


def _read(
    file: IO[bytes], places: dict[str, tuple[int, int]], storage: Storage, first: int, size: int
) -> bytes:
    start, end = places[storage.key]
    file.seek(start + first)
    return file.read(min(size, end - start - first))
