"""What stands for the values of a pickle that are more than plain containers: nothing here does
anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from auditor.extensions.checkpoints.contents import Malformed, Stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

Look = Callable[[Stored], "NDArray[Any]"]
"""Gives the numbers of a tensor of integers. Raises :class:`Malformed` if they are not there."""


class Name:
    """A global that the pickle asks for: its whole name, and nothing to call."""

    __slots__ = ("full",)

    def __init__(self, full: str) -> None:
        self.full = full


class Mark:
    """Stands for an object. ``hashable`` says whether it can be a key."""

    __slots__ = ()
    hashable = True

    def build(self, state: Any) -> None:
        """Take a state. Only some kinds have one. Raises :class:`Malformed`."""
        raise Malformed("its pickle changes a value after it was made")


class Value(Mark):
    """Something that was checked and holds nothing to look at: a device, a path, a date."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        self.kind = kind


class Meta(Value):
    """A tensor without numbers."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: str) -> None:
        super().__init__("torch.Tensor")
        self.dtype = dtype


class Shell(Meta):
    """A tensor whose numbers are those of another one, its attribute."""

    __slots__ = ()


class Made(Mark):
    """An object of another program's class: remembers its parts, and does nothing."""

    __slots__ = ("origin", "parts")
    hashable = False

    def __init__(self, origin: str, parts: list[Any]) -> None:
        self.origin = origin
        self.parts = parts

    def build(self, state: Any) -> None:
        """Its attributes; those that Python itself uses are nobody's to set."""
        self.parts.extend(attributes(state))


class Foreign(Made):
    """An object of a class that may run code: its state may be anything."""

    __slots__ = ()

    def build(self, state: Any) -> None:
        """Anything."""
        self.parts.append(state)


class Composite(Made):
    """A tensor that is made of several. Its one part is a dict: under ``""`` what has its numbers.

    ``check`` looks at the numbers that say where others are, and raises :class:`Malformed`.
    """

    __slots__ = ("check",)
    hashable = True

    def __init__(
        self, origin: str, parts: dict[str, Any], check: Callable[[Look], None] | None = None
    ) -> None:
        super().__init__(origin, [parts])
        self.check = check

    def build(self, state: Any) -> None:
        """It has no state: what replaces its numbers would not be looked at."""
        raise Malformed("its pickle changes a tensor after it was made")


PARAMETER = "parameter"
"""Origin of a composite that is a parameter: its one part is its data."""


class Attributed(dict[Any, Any]):
    """A dict of a framework, which has attributes, too."""

    def build(self, state: Any) -> None:
        """Raises :class:`Malformed` for those that none has."""
        attributes(state)


class Ordered(OrderedDict[Any, Any]):
    """``collections.OrderedDict``, whose attributes hold versions of modules."""

    attributes: dict[str, Any] = {}  # noqa: RUF012  # replaced, never changed

    def build(self, state: Any) -> None:
        """Raises :class:`Malformed` for attributes that hide its methods."""
        if not isinstance(state, dict) or not all(
            isinstance(key, str) and not hasattr(OrderedDict, key) for key in state
        ):
            raise Malformed("its pickle gives a dict attributes that it cannot have")
        self.attributes = {**self.attributes, **state}


class Key:
    """A key that is neither a word nor a number."""

    __slots__ = ()


class Group(list[Any]):
    """A set: what is in it, which need not be hashable here."""


class Frozen(Group):
    """A set that can be a key."""


KEY_PARTS = 1000
"""Parts of a tuple that is a key at most: hashing a deep one overflows the stack of the loading
process.
"""

PLAIN = (str, int, float, bytes, type(None))


def hashable(key: Any, *, tensors: bool = False) -> Any:
    """What stands for a key. Raises :class:`Malformed` for one that the loading process could not
    hash, and, but among ``tensors``, for a tensor: nobody looks for numbers in a key.
    """
    ahead, parts = [key], 0
    while ahead:
        each = ahead.pop()
        parts += 1
        plain = isinstance(each, (list, dict, bytearray)) and not isinstance(each, Frozen)
        if plain or not getattr(each, "hashable", True):
            raise Malformed("its pickle has a list or a dict as a key")
        if isinstance(each, (Stored, Composite)) and not tensors:
            raise Malformed("its pickle has a tensor as a key")
        if parts > KEY_PARTS:
            raise Malformed(f"its pickle has a key of more than {KEY_PARTS} parts")
        if isinstance(each, tuple):
            ahead.extend(each[: KEY_PARTS + 1])
    return Key()


def group(values: Any = ()) -> Group:
    """A set of what is in a list. Raises :class:`Malformed`."""
    if not isinstance(values, (list, tuple)):
        raise Malformed("its pickle makes a set of something that is no list")
    made = Group(values)
    for each in made:
        if not isinstance(each, PLAIN):
            hashable(each, tensors=True)
    return made


def frozen(values: Any = ()) -> Frozen:
    """A set that stays as it is."""
    return Frozen(group(values))


PYTHONS = frozenset({*dir(Mark), *dir(type("", (), {})), "__slots__"})
"""Attributes that Python itself uses."""


def attributes(state: Any) -> list[dict[str, Any]]:
    """The dicts of an object's state: of its attributes, and of its slots. Raises
    :class:`Malformed`.
    """
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    found = [part for part in parts if part is not None]
    for part in found:
        if not isinstance(part, dict) or not all(
            isinstance(key, str) and key not in PYTHONS for key in part
        ):
            raise Malformed("its pickle gives an object attributes that none has")
    return found
