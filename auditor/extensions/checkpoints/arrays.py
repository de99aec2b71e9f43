"""Arrays, numbers and random states of numpy, made of bytes in the pickle. Only numbers and texts are
looked at; of dates, objects and structures it is said that they are not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from auditor.extensions.checkpoints.contents import Malformed, Storage, Stored
from auditor.extensions.checkpoints.described import contiguous, shape_of
from auditor.extensions.checkpoints.marks import Made, Mark, Name

KINDS = {
    "b1": "bool",
    **{
        f"{sign}{width}": f"{'u' * (sign == 'u')}int{8 * width}"
        for sign in "iu"
        for width in (1, 2, 4, 8)
    },
    **{f"f{width}": f"float{8 * width}" for width in (2, 4, 8)},
    **{f"c{width}": f"complex{8 * width}" for width in (8, 16)},
}
"""dtypes by the word that numpy pickles."""

TEXT = re.compile(r"[SU](\d{1,9})")
OTHERS = re.compile(r"(?:O8?|V\d{1,9}|[Mm]8|f1[26]|c24|c32)")
UNREAD = {
    "O": "object",
    "V": "void",
    "M": "datetime64",
    "m": "timedelta64",
    "f": "longdouble",
    "c": "clongdouble",
}
"""Kinds whose values are not looked at, by the first letter of their word."""

WRONG = "an array of numpy is described wrongly, or holds more than numbers and texts"

HAS_OBJECTS = 1
"""Flag of a dtype whose arrays are saved as lists of objects."""

_WORD = {"has_uint32": (0, 1), "uinteger": (0, 2**32 - 1)}
_PCG = {"state": {"state": (0, 2**128 - 1), "inc": (0, 2**128 - 1)}, **_WORD}
STATES: dict[str, dict[str, Any]] = {
    "MT19937": {"state": {"key": 624, "pos": (0, 624)}},
    "Philox": {"state": {"counter": 4, "key": 2}, "buffer": 4, "buffer_pos": (0, 4), **_WORD},
    "PCG64": _PCG,
    "PCG64DXSM": _PCG,
}
"""The state of each generator: of a number its smallest and largest, of an array its length. numpy
does not check that they point into its buffers.
"""

SEEDS = "numpy.random.bit_generator.SeedSequence"


class Kind(Mark):
    """A dtype: ``word`` is numpy's (``f4``, ``U3``), ``unread`` the name of a kind whose values are
    not looked at, else empty.
    """

    __slots__ = ("big", "objects", "settled", "unread", "width", "word")

    def __init__(self, word: Any, align: Any = False, copy: Any = False) -> None:
        if not isinstance(word, str) or not isinstance(align, bool) or not isinstance(copy, bool):
            raise Malformed(WRONG)
        read = word in KINDS or TEXT.fullmatch(word)
        if not read and not OTHERS.fullmatch(word):
            raise Malformed(WRONG)
        self.word = word
        self.unread = "" if read else f"numpy.{UNREAD[word[0]]}"
        self.big = self.settled = False
        self.objects = word[0] == "O"
        self.width = (4 if word[0] == "U" else 1) * int(word[1:] or 8)

    def build(self, state: Any) -> None:
        """Its order of bytes; fields and parts are no plain numbers."""
        if not isinstance(state, tuple) or self.settled or not self.width:
            raise Malformed(WRONG)  # of one that is in use numpy would change what arrays hold
        self.settled = True
        if self.unread:
            self.objects |= (
                len(state) > 7 and type(state[7]) is int and bool(state[7] & HAS_OBJECTS)
            )
            return
        if len(state) != 8:
            raise Malformed(WRONG)
        version, order, *parts, width, align, flags = state
        own = {"U": (self.width, 4, 8), "S": (self.width, 1, 0)}.get(self.word[0], (-1, -1, 0))
        if (version, parts) != (3, [None] * 3) or order not in ("<", ">", "|", "="):
            raise Malformed(WRONG)
        if (width, align, flags) != own or not _whole(version, width, align, flags):
            raise Malformed(WRONG)
        self.big = order == ">"


def _whole(*numbers: Any) -> bool:
    """True if all are integers: 1.0 and True are as much, and numpy does not take them."""
    return all(type(number) is int for number in numbers)


class Array(Stored):
    """An array, whose numbers stand in the pickle itself. It is empty until it has its state."""

    hashable = False

    def build(self, state: Any) -> None:
        """Its shape, kind and bytes, once. Raises :class:`Malformed`."""
        if self.storage.raw or not isinstance(state, tuple) or len(state) != 5:
            raise Malformed(WRONG)
        version, shape, kind, fortran, raw = state
        if (
            version != 1
            or not _whole(version)
            or not isinstance(shape, tuple)
            or not isinstance(fortran, bool)
        ):
            raise Malformed(WRONG)
        self.fill(shape, kind, raw)

    def fill(self, shape: Any, kind: Any, raw: Any) -> None:
        """Raises :class:`Malformed` where the bytes are not those of so many numbers."""
        sizes = shape_of(shape)
        if not isinstance(kind, Kind):
            raise Malformed(WRONG)
        if not isinstance(raw, list if kind.objects else (bytes, bytearray)):
            raise Malformed(WRONG)
        if kind.unread:
            kind.settled = True
            self._set(Storage("", kind.unread, 0, raw=b""), sizes)
            return
        if len(raw) != math.prod(sizes) * kind.width or len(sizes) > 32:
            raise Malformed(WRONG)
        dtype = KINDS.get(kind.word, "bytes")
        numbers = (len(raw),) if dtype == "bytes" else sizes
        kind.settled = True
        self._set(Storage("", dtype, math.prod(numbers), raw=_little(kind, raw)), numbers)

    def _set(self, storage: Storage, shape: tuple[int, ...]) -> None:
        made = Stored(storage, storage.dtype, 0, shape, contiguous(shape))
        for field in fields(made):
            object.__setattr__(self, field.name, getattr(made, field.name))


def _little(kind: Kind, raw: Any) -> bytes:
    if not kind.big or kind.word not in KINDS:
        return bytes(raw)
    import numpy as np

    return np.frombuffer(raw, f">{kind.word}").astype(f"<{kind.word}").tobytes()


def _empty() -> Array:
    return Array(Storage("", "int8", 0, raw=b""), "int8", 0, (0,), (1,))


def _reconstruct(kind: Any, shape: Any, code: Any) -> Array:
    if not isinstance(kind, Name) or kind.full != "numpy.ndarray" or shape_of(shape) != (0,):
        raise Malformed(WRONG)
    if code not in (b"b", "b"):
        raise Malformed(WRONG)
    return _empty()


def _from_buffer(raw: Any, kind: Any, shape: Any, order: Any) -> Array:
    made = _empty()
    if order not in ("C", "F") or not isinstance(shape, tuple):
        raise Malformed(WRONG)
    made.fill(shape, kind, raw)
    return made


def _scalar(kind: Any, raw: Any) -> Any:
    """The number or text itself; what is not looked at, as an array of no dimensions."""
    import numpy as np

    if isinstance(kind, Kind) and kind.unread:
        kind.settled = True
        return Stored(Storage("", kind.unread, 0, raw=b""), kind.unread, 0, (), ())
    if not isinstance(kind, Kind) or not isinstance(raw, bytes) or len(raw) != kind.width:
        raise Malformed(WRONG)
    kind.settled = True
    return np.frombuffer(raw, f"{'>' if kind.big else '<'}{kind.word}")[0].item()


# -- generators of random numbers ------------------------------------------------------------------


class Generator(Made):
    """A generator, or a part of one, by the name of its kind."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """Its numbers: they must lie within its buffers. Raises :class:`Malformed`."""
        first, *rest = state if isinstance(state, tuple) and state else (state,)
        if isinstance(first, dict):
            numbers = dict(first)
            kind = numbers.pop("bit_generator", "")
            gauss, has = numbers.pop("gauss", 0.0), numbers.pop("has_gauss", 0)
            if self.origin not in (kind, "RandomState") or kind not in STATES:
                raise Malformed(WRONG)
            if has not in (0, 1) or not _whole(has) or type(gauss) not in (float, int):
                raise Malformed(WRONG)
            _numbers(numbers, STATES[kind])
        elif first is not None or self.origin != "Generator":
            raise Malformed(WRONG)
        if len(rest) > 1 or not all(each is None or isinstance(each, Seeds) for each in rest):
            raise Malformed(WRONG)


def _numbers(state: Any, known: dict[str, Any]) -> None:
    if not isinstance(state, dict) or {*state} != {*known}:
        raise Malformed(WRONG)
    for key, each in state.items():
        allowed = known[key]
        if isinstance(allowed, dict):
            _numbers(each, allowed)
        elif isinstance(allowed, int):
            if not isinstance(each, Array) or each.shape != (allowed,) or each.dtype[:4] != "uint":
                raise Malformed(WRONG)
        elif type(each) is not int or not allowed[0] <= each <= allowed[1]:
            raise Malformed("a random generator's state points outside of its buffers")


def _generator(kind: str) -> Callable[..., Generator]:
    def make(name: Any = "MT19937", *rest: Any) -> Generator:
        if isinstance(name, Generator):
            kinds = name.origin
        else:
            full = name.full if isinstance(name, Name) else name
            kinds = full.rpartition(".")[2] if isinstance(full, str) else ""
        ctors = [each for each in rest if not isinstance(each, Name)]
        if kinds not in STATES or len(rest) > 1 or ctors:
            raise Malformed(WRONG)
        return Generator(kind or kinds, [])

    return make


class Seeds(Generator):
    """A sequence of seeds: its state is its numbers, and a pool of more."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """Raises :class:`Malformed` for anything but numbers."""
        ahead = [state]
        while ahead:
            each = ahead.pop()
            if isinstance(each, (tuple, list)):
                ahead.extend(each)
            elif isinstance(each, Array):
                if "int" not in each.dtype:
                    raise Malformed(WRONG)
            elif each is not None and type(each) is not int:
                raise Malformed(WRONG)


def _seeds(kind: Any, checksum: Any, state: Any) -> Seeds:
    if not isinstance(kind, Name) or kind.full != SEEDS or type(checksum) is not int:
        raise Malformed(WRONG)
    made = Seeds("SeedSequence", [])
    made.build(state)
    return made


_CORE: dict[str, Callable[..., Any]] = {
    "multiarray._reconstruct": _reconstruct,
    "multiarray.scalar": _scalar,
    "numeric._frombuffer": _from_buffer,
}

CALLS: dict[str, Callable[..., Any]] = {
    **{f"numpy.{core}.{name}": make for core in ("core", "_core") for name, make in _CORE.items()},
    "numpy.dtype": Kind,
    "numpy.random._pickle.__randomstate_ctor": _generator("RandomState"),
    "numpy.random._pickle.__generator_ctor": _generator("Generator"),
    "numpy.random._pickle.__bit_generator_ctor": _generator(""),
    "numpy.random.bit_generator.__pyx_unpickle_SeedSequence": _seeds,
}
"""What stands for the result of each function of numpy."""
