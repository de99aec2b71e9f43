"""The machine that a pickle is a program for, with nothing behind it: it makes plain containers and
marks.

No name is imported and nothing is called: a global is a name, what would be made of it a mark
(:mod:`auditor.extensions.checkpoints.marks`). Its language is all opcodes of protocols 0 to 5 that need no other process (extension
codes and buffers out of band do). What Python's own unpickler or torch's would stop at, it stops at
too: :class:`Malformed`.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections.abc import Callable
from struct import Struct
from typing import Any

from auditor.evidence import pickled_names
from auditor.extensions.checkpoints.contents import Malformed, printable
from auditor.extensions.checkpoints.marks import PLAIN, Foreign, Made, Name, group, hashable

NUMBER = 1 << 16
"""Bytes of one integer at most."""

DEQUE = "collections.deque"

NAME = 200
"""Characters of a foreign name that are kept."""

FOREIGN = 1000
"""Foreign names that are kept; names of the known lists are always."""


class Short(Exception):
    """The bytes ended before the pickle did."""


Calls = dict[str, Callable[..., Any]]


class Machine:
    """One pickle, that begins ``data``. ``foreign`` grows with the names that are not
    in torch's list.

    ``calls`` and ``new`` give what stands for the results of functions, and of classes that are made
    without their ``__init__``; of a known name that is in neither nothing may be made. ``storage``
    gives what stands for a persistent id. ``made`` grows with the marks, ``beyond`` with opcodes that
    torch's own reader does not know.
    """

    def __init__(
        self, data: bytes, calls: Calls, new: Calls, storage: Callable[[Any], Any]
    ) -> None:
        self.data = data
        self.at = 0
        self.calls = calls
        self.new = new
        self.storage = storage
        self.foreign: set[str] = set()
        self.unknown = 0
        self.beyond = 0
        self.made: list[Any] = []
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
        old = NAME_MAPPING.get((module, attribute))  # of Python 2, in pickles up to protocol 2
        module, attribute = old or (IMPORT_MAPPING.get(module, module), attribute)
        full = f"{module}.{attribute}"
        if full not in pickled_names.TORCH:
            if full not in pickled_names.KNOWN:
                full = printable(full)[:NAME]
                self.unknown += full not in self.foreign
            if self.unknown <= FOREIGN or full in pickled_names.KNOWN:
                self.foreign.add(full)
        return Name(full)

    def call(self, function: Any, arguments: Any, *, new: bool = False) -> Any:
        """What stands for the result of a call, or (``new``) of a class's ``__new__``."""
        if not isinstance(function, Name):
            raise Malformed("its pickle calls something that is no function")
        if not isinstance(arguments, tuple):
            raise Malformed(f"its pickle calls {function.full} without a list of arguments")
        make = (self.new if new else self.calls).get(function.full)
        if make is not None:
            try:
                made = make(*arguments)
            except TypeError:
                raise Malformed(f"its pickle gives {function.full} wrong arguments") from None
        elif pickled_names.runs_code(function.full):
            made = Foreign(function.full, list(arguments))
        else:
            raise Malformed(f"its pickle calls {function.full} in a way that nothing saves")
        self.made.append(made)
        return made

    def state(self, owner: Any, state: Any) -> None:
        """Give an object its attributes. Only objects have some: a class that is given some is
        tampered with.
        """
        if isinstance(owner, Name):
            raise Malformed(f"its pickle changes the class {owner.full}")
        build = getattr(owner, "build", None)
        if build is None:
            raise Malformed("its pickle gives attributes to a plain value")
        build(state)

    def items(self, owner: Any, values: list[Any]) -> None:
        """Put keys and values into a mapping."""
        if len(values) % 2:
            raise Malformed("its pickle has a key without a value")
        if isinstance(owner, Foreign):
            owner.parts.extend(values[1::2])
        elif isinstance(owner, dict):
            for key, value in zip(values[::2], values[1::2], strict=True):
                owner[key if isinstance(key, PLAIN) else hashable(key)] = value
        else:
            raise Malformed("its pickle puts keys into something that has none")

    def extend(self, owner: Any, values: list[Any], kind: type[list[Any]] = list) -> None:
        """Append to a list, add to a set, or either to an object that has its way."""
        if isinstance(owner, Foreign) or (isinstance(owner, Made) and owner.origin == DEQUE):
            owner.parts.extend(values)
        elif type(owner) is kind:
            owner.extend(values if kind is list else group(values))
        else:
            raise Malformed("its pickle adds to something that cannot have more")
