"""What msgspec reads into our classes, safe where several threads read (``audit view``)."""

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_BUILDING = threading.RLock()
"""msgspec works out what it has to know of a dataclass when it is first read, and shows it to other
threads before it is complete: one that reads the same class meanwhile ends the process (0.22,
SIGSEGV).
"""


def convert(value: object, kind: type[T]) -> T:
    """``value``, as JSON was read, as a ``kind``. Raises ``msgspec.ValidationError``."""
    with _BUILDING:
        return msgspec.convert(value, kind)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Reads JSON into ``kind``, a class or a union of classes."""
    with _BUILDING:
        return msgspec.json.Decoder(kind)
