"""Reads the pickles of a checkpoint into inert marks: nothing that they name is ever imported or
called.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any

from auditor.checkpoints import allowed, opcodes
from auditor.checkpoints.contents import COUNT, Malformed, Storage, Stored
from auditor.checkpoints.machine import PLAIN, Machine, Made, Name, Short, group, hashable
from auditor.evidence.snapshot.unpickle import memory_capped, no_collections

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

NESTED = "torch._utils._rebuild_nested_tensor"


@dataclass(frozen=True)
class Loaded:
    """One pickle: what it describes, the names in it that are not torch's, the storages it refers
    to, where it ends.

    ``protocol`` is the highest that it says it is of.
    """

    tree: Any
    foreign: tuple[str, ...]
    storages: tuple[Storage, ...]
    end: int
    protocol: int


def load(file: IO[bytes], start: int, limit: int, *, modules: bool = False) -> Loaded:
    """The pickle that begins at a byte of the file and may have ``limit`` bytes.

    With ``modules`` it may refer to a module that was saved with its source (before torch 1.6).
    Raises :class:`Malformed`, whatever is wrong with it, with the names that it had asked for until
    then.
    """
    for window in WINDOWS:
        file.seek(start)
        try:
            return _run(file.read(min(window, limit)), start, modules=modules)
        except Short:
            if window >= limit:
                break
    raise Malformed("its pickle breaks off or is larger than any checkpoint needs")


def _run(data: bytes, start: int, *, modules: bool) -> Loaded:
    storages: dict[Storage, None] = {}

    def refer(pid: Any) -> Any:
        found = _persistent(pid, modules=modules)
        if isinstance(found, Storage):
            storages[found] = None
        return found

    machine = Machine(data, 0, REBUILD, refer)
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
        tree, tuple(sorted(machine.foreign)), tuple(storages), start + machine.at, machine.protocol
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


def names_in(file: IO[bytes], start: int, limit: int) -> tuple[str, ...]:
    """Names that a part of the file asks for if a loader takes it for a pickle; only such as Python
    could import.
    """
    for window in WINDOWS:
        file.seek(start)
        machine = Machine(
            file.read(min(window, limit)), 0, REBUILD, lambda pid: _persistent(pid, modules=True)
        )
        try:
            with memory_capped(MEMORY_AT_LEAST), no_collections():
                opcodes.run(machine)
        except Short:
            if window < limit:
                continue
        except (
            Exception
        ):  # what is no pickle may raise almost anything, and what was asked for before counts
            pass
        return tuple(
            sorted(
                name
                for name in machine.foreign
                if all(part.isidentifier() for part in name.split("."))
            )
        )
    return ()


def _persistent(pid: Any, *, modules: bool) -> Any:
    """A storage of the file."""
    if (
        modules
        and isinstance(pid, tuple)
        and len(pid) == 4
        and pid[0] == "module"
        and isinstance(pid[1], Name)
    ):
        return pid[1]  # a module pickled whole: its class, beside its source
    if not isinstance(pid, tuple) or len(pid) not in (5, 6) or pid[0] != "storage":
        raise Malformed("it refers to something that is neither a storage nor a module")
    _, kind, key, place, numel, *view = pid
    dtype = (
        allowed.STORAGE_CLASSES.get(kind.full)
        if isinstance(kind, Name) and kind.full != TYPED
        else None
    )
    if dtype is None or not isinstance(key, (str, int)) or not isinstance(place, str):
        raise Malformed("a storage is described wrongly")
    if not isinstance(numel, int) or isinstance(numel, bool) or not 0 <= numel < COUNT:
        raise Malformed("a storage is described wrongly")
    shift = view[0][1] if view and isinstance(view[0], tuple) and len(view[0]) == 3 else 0
    return Storage(str(key), dtype, numel, shift if isinstance(shift, int) and shift >= 0 else 0)


# -- rebuild functions, as marks -------------------------------------------------------------------


def _ordered(pairs: Any = (), *rest: Any) -> OrderedDict[Any, Any]:
    """``collections.OrderedDict`` of a list of pairs, as pickles of protocol 0 and 1 make it."""
    made: OrderedDict[Any, Any] = OrderedDict()
    for pair in pairs if isinstance(pairs, (list, tuple)) else ():
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise Malformed("its pickle makes a dict of something that is no pair")
        made[pair[0] if isinstance(pair[0], PLAIN) else hashable(pair[0])] = pair[1]
    return made


def _size(sizes: Any = (), *rest: Any) -> tuple[Any, ...]:
    return tuple(sizes) if isinstance(sizes, (list, tuple)) else ()


def _tensor(storage: Any, offset: Any, shape: Any, stride: Any, *rest: Any) -> Stored:
    plain = (
        isinstance(storage, Storage)
        and isinstance(offset, int)
        and isinstance(shape, tuple)
        and isinstance(stride, tuple)
    )
    numbers = [offset, *shape, *stride] if plain else [None]
    if not all(isinstance(each, int) and 0 <= each < COUNT for each in numbers) or len(
        shape
    ) != len(stride):
        raise Malformed("a tensor is described wrongly")
    return Stored(storage, storage.dtype, offset + storage.shift, tuple(shape), tuple(stride))


def _tensor_v3(*args: Any) -> Stored:
    named = (
        allowed.VALUES[each.full]
        for each in args[4:]
        if isinstance(each, Name) and each.full in allowed.VALUES
    )
    stored = _tensor(*args[:4])
    return replace(stored, dtype=next(named, stored.dtype))


def _parameter(data: Any, *rest: Any) -> Any:
    return data


def _from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    if not isinstance(function, Name) or not isinstance(kind, Name) or not isinstance(args, tuple):
        raise Malformed("a tensor is described wrongly")
    rebuild = REBUILD.get(function.full)
    return Made(function.full, [*args, state]) if rebuild is None else rebuild(*args)


REBUILD: dict[str, Callable[..., Any]] = {
    "builtins.frozenset": group,
    "builtins.set": group,
    "collections.OrderedDict": _ordered,
    "torch.Size": _size,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._utils._rebuild_qtensor": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _from_type,
}
"""The functions that make tensors of storages: here they only describe them."""


NODES = 4_000_000
"""Objects of one checkpoint that are walked at most; each is visited once, however often it is
referred to.
"""


DEPTH = 100
"""Containers in containers: of real checkpoints some ten. What lies deeper is left out."""


def walk(root: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """All values with their path, containers before what is in them; each container once."""
    seen: set[int] = set()
    ahead: list[tuple[tuple[str | int, ...], Any]] = [((), root)]
    while ahead and len(seen) < NODES:
        path, value = ahead.pop()
        inner = _inner(value)
        if inner is not None:
            if id(value) in seen:
                continue
            seen.add(id(value))
        yield path, value
        if len(path) < DEPTH:
            ahead.extend(((*path, key), each) for key, each in reversed(inner or ()))


def _inner(value: Any) -> list[tuple[str | int, Any]] | None:
    if isinstance(value, dict):
        return [(key if isinstance(key, (str, int)) else "?", each) for key, each in value.items()]
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    if isinstance(value, Made):
        parts = [
            _inner(part) if isinstance(part, dict) else [(number, part)]
            for number, part in enumerate(value.parts)
        ]
        return [item for part in parts for item in part or ()]
    return None
