"""Reads the pickles of a checkpoint into inert marks: nothing that they name is ever imported or
called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite
from typing import IO, Any, Literal

from auditor.evidence import pickled_names
from auditor.evidence.snapshot.unpickle import memory_capped, no_collections
from auditor.extensions.checkpoints import arrays, described, opcodes, plain, tensors
from auditor.extensions.checkpoints.contents import Malformed, Storage
from auditor.extensions.checkpoints.machine import Machine, Short
from auditor.extensions.checkpoints.marks import Composite, Made, Name, Ordered

MEMORY_PER_BYTE, MEMORY_AT_LEAST, MEMORY_LIMIT = 64, 2**28, 3 * 2**29
"""Bytes of memory that unpickling may take: a few opcodes can ask for more than any machine has."""

PICKLE_LIMIT = 2**28
"""Bytes of a pickle at most: those of real checkpoints with a hundred thousand tensors are some 30
MB.
"""

WINDOWS = (2**16, 2**20, 2**24, PICKLE_LIMIT)
"""Bytes that are read of a file for a pickle whose length nothing says: the next one where it does
not end within.
"""


TYPED = "torch.storage.TypedStorage"
"""The one storage class that names no dtype: torch cannot make a storage of it."""

Form = Literal["zip", "legacy", ""]
"""In which format a pickle may refer to storages; none of the old format's other four may."""


@dataclass(frozen=True)
class Loaded:
    """One pickle: what it describes, the names in it that are not torch's, the storages it refers
    to, where it ends.

    ``made`` are all tensors that it makes, also those that it throws away; ``beyond`` is the first
    opcode in it that torch's own reader does not know, in words.
    """

    tree: Any
    foreign: tuple[str, ...]
    storages: tuple[Storage, ...]
    end: int
    made: tuple[Composite, ...]
    beyond: str


def load(file: IO[bytes], start: int, limit: int, form: Form = "") -> Loaded:
    """The pickle that begins at a byte of the file and may have ``limit`` bytes.

    In the old form it may refer to a module that was saved with its source (before torch 1.6).
    Raises :class:`Malformed`, whatever is wrong with it, with the names that it had asked for until
    then.
    """
    for window in WINDOWS:
        file.seek(start)
        try:
            return _run(file.read(min(window, limit)), start, form)
        except Short:
            if window >= limit:
                break
    raise Malformed("its pickle breaks off or is larger than any checkpoint needs")


def _run(data: bytes, start: int, form: Form) -> Loaded:
    storages: dict[str, Storage] = {}

    def refer(pid: Any) -> Any:
        found = _persistent(pid, form)
        if isinstance(found, Storage):
            known = storages.setdefault(found.key, found)
            if (known.dtype, known.numel) != (found.dtype, found.numel):
                raise Malformed(f"storage {found.key[:40]} is described in two ways")
        return found

    machine = Machine(data, CALLS, NEW, refer)
    try:
        with (
            memory_capped(min(MEMORY_LIMIT, MEMORY_AT_LEAST + MEMORY_PER_BYTE * len(data))),
            no_collections(),
        ):
            tree = opcodes.run(machine)
    except Short:
        raise
    except Exception as error:
        raise _problem(error, machine) from None
    return Loaded(
        tree,
        tuple(sorted(machine.foreign)),
        tuple(storages.values()),
        start + machine.at,
        tuple(each for each in machine.made if isinstance(each, Composite)),
        opcodes.said(machine.beyond),
    )


def _problem(error: Exception, machine: Machine) -> Malformed:
    if isinstance(error, Malformed):
        problem = error
    elif isinstance(error, MemoryError):
        problem = Malformed("its pickle asks for more memory than it can need")
    else:
        problem = Malformed(f"its pickle is damaged ({type(error).__name__})")
    problem.foreign = tuple(sorted(machine.foreign))
    return problem


class Listener(Machine):
    """Hears which names a pickle asks for, whatever is wrong with what it makes of them."""

    def call(self, function: Any, arguments: Any, *, new: bool = False) -> Any:
        """Anything, of anything."""
        return None

    def state(self, owner: Any, state: Any) -> None:
        """Anything has any state."""

    def items(self, owner: Any, values: list[Any]) -> None:
        """Anything has keys."""

    def extend(self, owner: Any, values: list[Any], kind: type[list[Any]] = list) -> None:
        """Anything has parts."""


def names_in(file: IO[bytes], start: int, limit: int) -> tuple[str, ...]:
    """Names that a part of the file asks for if a loader takes it for a pickle; only such as Python
    could import.
    """
    for window in WINDOWS:
        file.seek(start)
        machine = Listener(file.read(min(window, limit)), {}, {}, lambda pid: None)
        try:
            with memory_capped(MEMORY_AT_LEAST), no_collections():
                opcodes.run(machine)
        except Short:
            if window < limit:
                continue
        except Exception:
            # what is no pickle may raise almost anything, and what was asked for before counts
            pass
        return tuple(
            sorted(
                name
                for name in machine.foreign
                if all(part.isidentifier() for part in name.split("."))
            )
        )
    return ()


def _persistent(pid: Any, form: Form) -> Any:
    """A storage of the file."""
    parts = pid if isinstance(pid, tuple) else ()
    if form == "legacy" and len(parts) == 4 and parts[0] == "module" and isinstance(parts[1], Name):
        return parts[1]  # a module pickled whole: its class, beside its source
    if not form or len(parts) != (5 if form == "zip" else 6) or parts[0] != "storage":
        raise Malformed("it refers to something that is neither a storage nor a module")
    _, kind, key, place, numel, *more = parts
    dtype = (
        pickled_names.STORAGE_CLASSES.get(kind.full)
        if isinstance(kind, Name) and kind.full != TYPED
        else None
    )
    if dtype is None or not isinstance(key, (str, int)) or not described.is_count(numel):
        raise Malformed("a storage is described wrongly")
    if described.place_of(place) == "meta":
        raise Malformed("a storage has no place: its numbers would not be loaded")
    view = more[0] if more else None
    if view is None:
        return Storage(str(key), dtype, numel)
    if not isinstance(view, tuple) or len(view) != 3 or not all(map(described.is_count, view[1:])):
        raise Malformed("a storage is described wrongly")
    if view[1] + view[2] > numel:
        raise Malformed("a storage ends past the one that it is part of")
    return Storage(str(key), dtype, numel, view[1], view[2])


CALLS = {**plain.CALLS, **arrays.CALLS, **tensors.CALLS}
NEW = {**plain.NEW, **tensors.NEW}
"""What is made of each name, by a call and without ``__init__``. A known name that is in neither is
a value: nothing may call it.
"""


NODES = 4_000_000
"""Objects of one checkpoint that are walked at most; each is visited once, however often it is
referred to.
"""


DEPTH = 100
"""Containers in containers: of real checkpoints some ten. What lies deeper is left out."""

Place = tuple[str | int, ...]


def walk(
    root: Any, apart: Callable[[Place], bool] = lambda path: False, left: list[str] | None = None
) -> Iterator[tuple[Place, Any]]:
    """Values with their path, containers before what is in them; each container once. Numbers and
    texts in lists are left out, but for the first that are not finite.

    What lies below keys that are ``apart`` and elsewhere too is visited twice. ``left`` grows with
    sentences about what is left out.
    """
    seen: set[tuple[int, bool]] = set()
    ahead: list[tuple[Place, Any, bool]] = [((), root, False)]
    while ahead:
        path, value, among = ahead.pop()
        inner = _inner(value)
        if inner is not None:
            among = among or apart(path[-1:])
            mark = id(value), among
            if mark in seen:
                continue
            seen.add(mark)
        yield path, value
        if inner and (len(path) >= DEPTH or len(seen) >= NODES):
            if left is not None:
                left.append("it has so many values in values that not all of them were looked at")
            return
        ahead.extend(((*path, key), each, among) for key, each in reversed(inner or ()))


LEAVES = frozenset({bool, bytes, int, str, type(None)})
"""Kinds of values that say nothing without a key that is a word."""


def _inner(value: Any) -> list[tuple[str | int, Any]] | None:
    """What is in a container that is worth a look: a key, and what it is of."""
    if isinstance(value, dict):
        more = value.attributes if isinstance(value, Ordered) else {}
        every = (*value.items(), *more.items())
        return [
            (key if isinstance(key, (str, int)) else "?", each)
            for key, each in every
            if isinstance(key, str) or type(each) not in LEAVES
        ]
    if isinstance(value, (list, tuple)):
        return _in_list(value)
    if isinstance(value, Made):
        parts = [
            _inner(part) if isinstance(part, dict) else [(number, part)]
            for number, part in enumerate(value.parts)
        ]
        return [item for part in parts for item in part or ()]
    return None


def _in_list(values: list[Any] | tuple[Any, ...]) -> list[tuple[str | int, Any]]:
    """All but plain values; of numbers that are not finite the first NaN, inf and -inf."""
    found: list[tuple[str | int, Any]] = []
    odd: set[str] = set()
    for number, each in enumerate(values):
        kind = type(each)
        if kind in LEAVES:
            continue
        if kind is float:
            if isfinite(each) or str(each) in odd:
                continue
            odd.add(str(each))
        found.append((number, each))
    return found
