"""The machine that a pickle is a program for, with nothing behind it: it makes plain containers and
marks.

No name is imported and nothing is called: a global is a :class:`Name`, what would be made of it a
:class:`Made`. Its language is all opcodes of protocols 0 to 5 that need no other process (extension
codes and buffers out of band do). What Python's own unpickler or torch's would stop at, it stops at
too: :class:`Malformed`.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from auditor.checkpoints import allowed
from auditor.checkpoints.contents import Malformed, printable

NUMBER = 1 << 16
"""Bytes of one integer at most."""

KEY_PARTS = 1000
"""Parts of a tuple that is a key at most: hashing a deep one overflows the stack of the loading
process.
"""

NAME = 200
"""Characters of a foreign name that are kept."""

FOREIGN = 1000
"""Foreign names that are kept; names of the known lists are always."""

MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}
"""Modules of Python 2 by their name of today: pickles up to protocol 2 use the old ones."""


class Short(Exception):
    """The bytes ended before the pickle did."""


class Name:
    """A global that the pickle asks for: its whole name, and nothing to call."""

    __slots__ = ("full",)

    def __init__(self, full: str) -> None:
        self.full = full


class Made:
    """In the place of an object of another program's class: remembers its parts, and does
    nothing.
    """

    __slots__ = ("origin", "parts")

    def __init__(self, origin: str, parts: list[Any]) -> None:
        self.origin = origin
        self.parts = parts


class Key:
    """A key that is neither a word nor a number."""

    __slots__ = ()


class Group(list[Any]):
    """A set: what is in it, which need not be hashable here."""


Rebuild = Callable[..., Any]


class Machine:
    """One pickle that begins at ``at`` of ``data``. ``foreign`` grows with the names that are not
    in torch's list.

    ``rebuild`` gives what stands for the results of some functions, ``storage`` what stands for a
    persistent id.
    """

    def __init__(
        self, data: bytes, at: int, rebuild: dict[str, Rebuild], storage: Callable[[Any], Any]
    ) -> None:
        self.data = data
        self.at = at
        self.rebuild = rebuild
        self.storage = storage
        self.foreign: set[str] = set()
        self.unknown = 0
        self.protocol = 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    # -- reading -----------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self.at + size
        if end > len(self.data):
            raise Short
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, form: Struct) -> int:
        """The next number."""
        number: int = form.unpack(self.take(form.size))[0]
        return number

    def line(self) -> bytes:
        """The next line, without its end."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise Short
        return self.take(end + 1 - self.at)[:-1]

    # -- the stack ---------------------------------------------------------------------------------

    def pop(self) -> Any:
        """The value on top."""
        if not self.stack:
            raise Malformed("its pickle takes from an empty stack")
        return self.stack.pop()

    def top(self) -> Any:
        """The value on top, left where it is."""
        if not self.stack:
            raise Malformed("its pickle takes from an empty stack")
        return self.stack[-1]

    def push(self, value: Any) -> None:
        """Put a value on top."""
        self.stack.append(value)

    def marked(self) -> list[Any]:
        """Everything above the last mark."""
        if not self.below:
            raise Malformed("its pickle goes back to a mark that it never set")
        items, self.stack = self.stack, self.below.pop()
        return items

    # -- what is named and called ------------------------------------------------------------------

    def name(self, module: str, attribute: str) -> Name:
        """The mark of a global."""
        full = f"{MODULES.get(module, module)}.{attribute}"
        if full not in allowed.TORCH:
            if full not in allowed.KNOWN:
                full = printable(full)[:NAME]
                self.unknown += full not in self.foreign
            if self.unknown <= FOREIGN or full in allowed.KNOWN:
                self.foreign.add(full)
        return Name(full)

    def call(self, function: Any, arguments: Any) -> Any:
        """What stands for the result of a call."""
        if not isinstance(function, Name):
            raise Malformed("its pickle calls something that is no function")
        if function.full in allowed.VALUES:
            raise Malformed(f"its pickle calls {function.full}, which is a value")
        if not isinstance(arguments, tuple):
            raise Malformed(f"its pickle calls {function.full} without a list of arguments")
        if (
            any(isinstance(each, int) and abs(each) >= 1 << 31 for each in arguments)
            and function.full in SIZED
        ):
            raise Malformed(f"its pickle asks for a {function.full} of an absurd size")
        rebuild = self.rebuild.get(function.full)
        return Made(function.full, list(arguments)) if rebuild is None else rebuild(*arguments)

    def state(self, owner: Any, state: Any) -> None:
        """Give an object its attributes. Only objects have some: a class that is given some is
        tampered with.
        """
        if isinstance(owner, Name):
            raise Malformed(f"its pickle changes the class {owner.full}")
        if isinstance(owner, Made):
            owner.parts.append(state)
        elif (
            owner is None
            or isinstance(owner, (str, bytes, int, float, list, tuple))
            or type(owner) is dict
        ):
            raise Malformed("its pickle gives attributes to a plain value")

    def items(self, owner: Any, values: list[Any]) -> None:
        """Put keys and values into a mapping."""
        if len(values) % 2:
            raise Malformed("its pickle has a key without a value")
        if isinstance(owner, Made):
            owner.parts.extend(values[1::2])
        elif isinstance(owner, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                owner[key if isinstance(key, PLAIN) else hashable(key)] = value
        else:
            raise Malformed("its pickle puts keys into something that has none")

    def extend(self, owner: Any, values: list[Any], kind: type[list[Any]] = list) -> None:
        """Append to a list, add to a set, or either to an object that has its way."""
        if isinstance(owner, Made):
            owner.parts.extend(values)
        elif type(owner) is kind:
            owner.extend(values if kind is list else group(values))
        else:
            raise Malformed("its pickle adds to something that cannot have more")


PLAIN = (str, int, float, bytes, type(None))
SIZED = frozenset(
    {
        "builtins.bytearray",
        "builtins.bytes",
        "numpy.ndarray",
        "torch.Tensor",
        *allowed.STORAGE_CLASSES,
    }
    | {name for name in allowed.CALLED if name.endswith("Tensor")}
)
"""Classes that make as many bytes as a number says."""


def hashable(key: Any) -> Any:
    """What stands for a key. Raises :class:`Malformed` for one that the loading process could not
    hash.
    """
    ahead, parts = [key], 0
    while ahead:
        each = ahead.pop()
        parts += 1
        if isinstance(each, (list, dict)):
            raise Malformed("its pickle has a list or a dict as a key")
        if parts > KEY_PARTS:
            raise Malformed(f"its pickle has a key of more than {KEY_PARTS} parts")
        if isinstance(each, tuple):
            ahead.extend(each[: KEY_PARTS + 1])
    return Key()


def group(values: Any = ()) -> Group:
    """A set of what is in a list."""
    made = Group(values if isinstance(values, (list, tuple)) else ())
    for each in made:
        if isinstance(each, (list, dict, tuple)):
            hashable(each)
    return made
