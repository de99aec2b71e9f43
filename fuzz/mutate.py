"""Mutants of whole files: bytes that flip, and values that no writer gives at the places where
values stand.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    255,
    256,
    65536,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**63 - 1,
    2**63,
    2**64,
    -(2**31),
    -(2**63),
    10**400,
)
FLOATS = (0.5, -0.0, 1e-320, 1e16, 1e300, float("inf"), float("-inf"), float("nan"))
WORDS = (
    "",
    "a" * 300,
    "\x00",
    "\u202e",
    "\ud800",
    "../../etc/passwd",
    "\x1b[2J",
    "::error::x",
    "<script>",
    "%s%n",
    "ProfilerStep#9999999999",
)
OPCODES = bytes(range(0x28, 0x80)) + bytes(range(0x80, 0x98))
PIECES = (
    b"\x85" * 500,
    b"}" * 300,
    b"(" * 300,
    b"]" * 300,
    b"h\x00" * 50,
    b"cos\nsystem\n(tR",
    b"\x80\x04",
    b"\xff" * 8,
    b"2" * 200,
    b"[" * 400,
)

GZIP = b"\x1f\x8b"
"""How such a file begins."""

Chance = random.Random


def value(chance: Chance, old: Any) -> Any:
    """Something else in the place of a value."""
    kind = chance.randrange(8)
    if kind < 3:
        return chance.choice(NUMBERS)
    if kind == 3:
        return chance.choice(FLOATS)
    if kind == 4:
        return chance.choice(WORDS)
    if kind == 5:
        return chance.choice([None, True, [], {}, [[]] * 20, {"a": {}}, [None] * 5])
    if kind == 6 and isinstance(old, (int, float)) and not isinstance(old, bool):
        return -old if chance.random() < 0.3 else old * chance.choice([2, 10, 1000, 10**6, 10**9])
    return [old, old]


def tree(chance: Chance, content: Any) -> Any:
    """JSON or plain data with some of its values, keys or items changed. ``content`` is changed in
    place.
    """
    for _ in range(chance.choice((1, 1, 2, 5, 20))):
        place = content
        for _ in range(chance.randrange(1, 9)):
            keys = list(place) if isinstance(place, dict) else range(len(place))
            if not keys:
                break
            key = chance.choice(list(keys))
            inner = place[key]
            if isinstance(inner, (dict, list)) and inner and chance.random() < 0.85:
                place = inner
                continue
            _change(chance, place, key)
            break
    return content


def _change(chance: Chance, place: Any, key: Any) -> None:
    kind = chance.randrange(6)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, list):
        place.extend([place[key]] * chance.choice((1, 3, 50)))
    elif kind == 2 and isinstance(place, dict):
        place[chance.choice(WORDS[:-1])] = place.pop(key)
    else:
        place[key] = value(chance, place[key])


def raw(chance: Chance, content: bytes) -> bytes:
    """Bytes flipped, cut, doubled, moved, or replaced by pieces that mean something to a parser."""
    made = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 4, 12))):
        at = chance.randrange(len(made) + 1)
        kind = chance.randrange(9)
        if kind < 3 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif kind == 3 and at < len(made):
            made[at] = chance.choice(OPCODES)
        elif kind == 4:
            made[at : at + chance.randrange(1, 40)] = b""
        elif kind == 5:
            made[at:at] = chance.choice(PIECES)
        elif kind == 6:
            made[at:at] = made[max(0, at - chance.randrange(1, 200)) : at] * chance.choice(
                (1, 1, 30)
            )
        elif kind == 7:
            form, top = chance.choice((("<H", 2**16), ("<I", 2**32), ("<Q", 2**64)))
            made[at : at + struct.calcsize(form)] = struct.pack(
                form, chance.choice([n for n in NUMBERS if 0 <= n < top])
            )
        elif chance.random() < 0.2:
            del made[at:]
    return bytes(made)


def _line(chance: Chance, content: bytes) -> bytes:
    """Some lines of a file of rows changed inside, doubled or lost."""
    lines = content.splitlines()
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(lines))
        try:
            lines[at] = _json(tree(chance, json.loads(lines[at])))
        except (ValueError, OverflowError):
            lines[at] = raw(chance, lines[at])
        if chance.random() < 0.2:
            lines[at:at] = [chance.choice(lines)] * chance.choice((1, 2, 30))
    return b"\n".join(lines) + b"\n"


def _json(content: Any) -> bytes:
    text = json.dumps(content)
    return text.encode("utf-8", "surrogatepass")


def mutant(chance: Chance, kind: str, seed: bytes) -> bytes:
    """One mutant of a seed; packed ones are changed inside, and packed again, as often as
    outside.
    """
    if seed[:2] == GZIP and chance.random() < 0.7:
        return gzip.compress(mutant(chance, kind, gzip.decompress(seed)), 1, mtime=0)
    if seed[:1] in (b"{", b"[") and chance.random() < 0.75:
        try:
            return _json(tree(chance, json.loads(seed)))
        except (ValueError, OverflowError):
            return (
                _line(chance, seed)
                if seed.count(b"\n") > 1 and chance.random() < 0.8
                else raw(chance, seed)
            )
    if seed[:2] == GZIP:
        return raw(chance, seed)
    if kind == "snapshot" and chance.random() < 0.6:
        import pickle

        return pickle.dumps(tree(chance, pickle.loads(seed)), chance.choice((2, 4)))
    if kind == "checkpoint" and chance.random() < 0.5:
        return _repacked(chance, seed)
    return raw(chance, seed)


def _repacked(chance: Chance, seed: bytes) -> bytes:
    """A zip archive with one record changed and the checksums right; the header of a safetensors
    file changed as JSON.
    """
    from fuzz.hostile_checkpoints import archive

    if seed[8:9] == b"{":
        length = int.from_bytes(seed[:8], "little")
        header = _json(tree(chance, json.loads(seed[8 : 8 + length])))
        return len(header).to_bytes(8, "little") + header + seed[8 + length :]
    if not seed.startswith(b"PK"):
        return raw(chance, seed)
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(seed)) as file:
        records = {name.partition("/")[2]: file.read(name) for name in file.namelist()}
    name = chance.choice(["data.pkl"] * 6 + [*records])
    records[name] = raw(chance, records[name])
    pickled = records.pop("data.pkl")
    return archive(
        pickled,
        version=records.pop("version"),
        **{each.replace("/", "__"): content for each, content in records.items()},
    )
