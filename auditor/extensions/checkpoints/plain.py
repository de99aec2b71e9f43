"""Containers and values of Python, and objects of frameworks that only hold attributes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from auditor.evidence import pickled_names
from auditor.extensions.checkpoints import described
from auditor.extensions.checkpoints.contents import Malformed
from auditor.extensions.checkpoints.marks import (
    PLAIN,
    Attributed,
    Made,
    Mark,
    Name,
    Ordered,
    Value,
    frozen,
    group,
    hashable,
)

DIGITS = 300
"""Characters of a number that is saved as text."""

DECIMAL = re.compile(r"-?(?:\d+(?:\.\d*)?(?:E[+-]?\d{1,6})?|Infinity|NaN)")
FRACTION = re.compile(r"-?\d+(?:/[1-9]\d*)?")

WRONG = "its pickle makes a value of parts that it never has"

ENCODINGS = ("latin1", "latin-1", "utf-8", "utf8", "ascii")

FACTORIES = frozenset(
    {
        *(f"builtins.{name}" for name in ("bool", "bytes", "dict", "float", "frozenset", "int")),
        *(f"builtins.{name}" for name in ("list", "set", "str", "tuple")),
        "collections.OrderedDict",
        "collections.Counter",
    }
)
"""What a ``defaultdict`` may make."""


demand = partial(described.demand, problem=WRONG)


def _ordered(pairs: Any = ()) -> Ordered:
    """``collections.OrderedDict`` of a list of pairs, as pickles of protocol 0 and 1 make it."""
    made = Ordered()
    demand(isinstance(pairs, (list, tuple)))
    for pair in pairs:
        demand(isinstance(pair, (list, tuple)) and len(pair) == 2)
        made[pair[0] if isinstance(pair[0], PLAIN) else hashable(pair[0])] = pair[1]
    return made


def _counter(counts: Any = None) -> dict[Any, Any]:
    demand(counts is None or isinstance(counts, dict))
    return dict(counts or {})


def _default(factory: Any = None) -> dict[Any, Any]:
    demand(factory is None or (isinstance(factory, Name) and factory.full in FACTORIES))
    return {}


class Fixed(Made):
    """What has parts and no attributes."""

    __slots__ = ()
    hashable = True

    def build(self, state: Any) -> None:
        """It has no attributes."""
        demand(state is None)


def _deque(values: Any = (), most: Any = None) -> Made:
    demand(isinstance(values, (list, tuple)) and (most is None or described.is_count(most)))
    return Queue("collections.deque", list(values))


class Queue(Fixed):
    """A deque."""

    __slots__ = ()
    hashable = False


def _bytes(text: Any, encoding: Any) -> bytes:
    """Bytes as protocol 2 writes them: a text of as many characters, or one that is encoded."""
    demand(isinstance(text, str) and encoding in ENCODINGS)
    try:
        return str(text).encode(encoding)
    except UnicodeEncodeError:
        raise Malformed(WRONG) from None


def _bytearray(*parts: Any) -> bytearray:
    if len(parts) == 2:
        return bytearray(_bytes(*parts))
    demand(len(parts) <= 1 and all(isinstance(part, bytes) for part in parts))
    return bytearray(*parts)


def _complex(*parts: Any) -> complex:
    demand(len(parts) <= 2 and all(type(part) in (int, float) for part in parts))
    return complex(*parts)


def _converted(kind: type[Any], *given: Any) -> Any:
    """A builtin of nothing, or of a value of its own kind."""
    demand(len(given) <= 1 and all(type(each) is kind for each in given))
    return kind(*given)


def _sequence(kind: type[Any], values: Any = ()) -> Any:
    demand(isinstance(values, (list, tuple)))
    return kind(values)


def _range(*ends: Any) -> Value:
    demand(len(ends) == 3 and all(type(end) is int for end in ends) and ends[2])
    return Value("builtins.range")


def _slice(*ends: Any) -> Value:
    demand(len(ends) == 3 and all(end is None or type(end) is int for end in ends))
    return Unhashable("builtins.slice")


class Unhashable(Value):
    """What is no key."""

    __slots__ = ()
    hashable = False


def _moment(name: str, sizes: tuple[int, ...], raw: Any, zone: Any = None) -> Value:
    """A date or time in the bytes that pickle has of it; it is made, to see that it can be."""
    import datetime as dt

    demand(isinstance(raw, bytes) and len(raw) in sizes)
    demand(zone is None or (isinstance(zone, Value) and zone.kind == "timezone"))
    try:
        made = getattr(dt, name)(raw)
        made.replace(**{field: getattr(made, field) for field in FIELDS[name]}).isoformat()
    except (ValueError, TypeError, OverflowError):
        raise Malformed(WRONG) from None
    return Value(name)


FIELDS = {
    "date": ("year", "month", "day"),
    "time": ("hour", "minute", "second", "microsecond"),
    "datetime": ("year", "month", "day", "hour", "minute", "second", "microsecond"),
}


def _timedelta(*parts: Any) -> Value:
    demand(len(parts) <= 3 and all(type(part) is int for part in parts))
    demand(all(abs(part) < 10**6 for part in parts))
    return Value("timedelta")


def _timezone(offset: Any, name: Any = None) -> Value:
    demand(isinstance(offset, Value) and offset.kind == "timedelta")
    demand(name is None or isinstance(name, str))
    return Value("timezone")


def _decimal(text: Any) -> Value:
    demand(isinstance(text, str) and len(text) <= DIGITS and DECIMAL.fullmatch(text))
    return Value("decimal")


def _fraction(above: Any, below: Any = None) -> Value:
    if below is None:
        demand(isinstance(above, str) and len(above) <= DIGITS and FRACTION.fullmatch(above))
    else:
        demand(type(above) is int and type(below) is int and below)
    return Value("fraction")


def _texts(*parts: Any) -> Value:
    demand(all(isinstance(part, str) for part in parts))
    return Value("text")


def _version(text: Any) -> str:
    demand(isinstance(text, str))
    return str(text)


def _member(value: Any) -> Value:
    """A member of an enumeration."""
    demand(isinstance(value, (str, int)))
    return Value("enumeration")


class Range(Mark):
    """A range of sizes that torch.compile was given: a dimension and its ends."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """These three."""
        demand(isinstance(state, list) and len(state) == 3)
        demand(all(part is None or type(part) is int for part in state))


class Identity(Mark):
    """A UUID: a number, which is its state."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """Its number."""
        demand(isinstance(state, dict) and {*state} <= {"int", "is_safe"})
        number = state.get("int")
        demand(type(number) is int and 0 <= number < 1 << 128)


def _object(name: str) -> Made:
    """An object of a class that only holds attributes, made without its ``__init__``."""
    return Made(name, [])


def _tuple(size: int, *args: Any) -> Made:
    demand(len(args) == size)
    return Fixed("tuple", list(args))


OBJECTS = (*pickled_names.OPTIONS, *pickled_names.TENSOR_PACKAGE[1:], *pickled_names.TRAINER)
"""Classes whose objects are made empty, and then get their attributes."""

TUPLES = {
    "torch.distributed.tensor._dtensor_spec.ShardOrderEntry": 2,
    "torch.distributed.tensor._dtensor_spec.TensorMeta": 3,
}
"""Tuples with names, and their number of parts."""

CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "collections.Counter": _counter,
    "collections.defaultdict": _default,
    "collections.deque": _deque,
    "_codecs.encode": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "builtins.set": group,
    "builtins.frozenset": frozen,
    "builtins.list": partial(_sequence, list),
    "builtins.tuple": partial(_sequence, tuple),
    **{
        f"builtins.{kind.__name__}": partial(_converted, kind)
        for kind in (bool, bytes, dict, float, int, str)
    },
    "builtins.range": _range,
    "builtins.slice": _slice,
    "datetime.date": partial(_moment, "date", (4,)),
    "datetime.datetime": partial(_moment, "datetime", (10,)),
    "datetime.time": partial(_moment, "time", (6,)),
    "datetime.timedelta": _timedelta,
    "datetime.timezone": _timezone,
    "decimal.Decimal": _decimal,
    "fractions.Fraction": _fraction,
    **dict.fromkeys(pickled_names.PATHS, _texts),
    **dict.fromkeys(pickled_names.ENUMERATIONS, _member),
    "types.SimpleNamespace": partial(_object, "types.SimpleNamespace"),
}
"""What stands for the result of each call."""

NEW: dict[str, Callable[..., Any]] = {
    **{name: partial(_object, name) for name in OBJECTS},
    **dict.fromkeys(pickled_names.MAPPINGS, Attributed),
    **{name: partial(_tuple, size) for name, size in TUPLES.items()},
    "torch.torch_version.TorchVersion": _version,
    "torch._dynamo.decorators._DimRange": Range,
    "uuid.UUID": Identity,
    "builtins.complex": _complex,
}
"""The same for objects that are made without their ``__init__``."""
