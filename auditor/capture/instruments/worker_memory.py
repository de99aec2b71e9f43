"""Inside a worker process of a DataLoader: which containers of its dataset, or of the modules around
it, hold more after each batch, and whether reading them copies memory that the worker shares with
the process that forked it.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

import torch
from torch.utils.data import get_worker_info

T = TypeVar("T")

CONTAINERS = (list, dict, set, deque)

OBJECTS = 64
"""Objects that are looked into, at most."""

PLACES = 256
"""Containers that are watched, at most."""

NESTED = 256
"""Containers in one of them that are counted, at most: the newest ones."""

POINTER = 8
"""Bytes of a place in a list."""

FEWEST, SAMPLED, DEEPEST = 10_000, 32, 3
"""Items of a container whose objects are weighed: from so many items on, of so many, so deep."""

MISSED, AGAIN = 0.95, 24
"""Of the samples that are fetched again, so many are stored again by a cache that is none, if so
many were seen. A cache of a few versions of each (flipped or not) hits more often.
"""

NOTED = 1 << 17
"""Samples of which it is remembered that they were fetched."""


@dataclass(eq=False)
class ContainerPlace:
    """An attribute, or a global, that is a container. ``owner``: its class; empty of a global."""

    holder: Any
    module: str
    owner: str
    name: str

    def weighed(self) -> tuple[int, int, str]:
        """See :func:`weighed`; nothing where it is no container any more."""
        value = vars(self.holder).get(self.name)
        return weighed(value) if isinstance(value, CONTAINERS) else (0, 0, "values")

    def objects(self) -> tuple[int, int]:
        """About the bytes of the Python objects in it, and how many items it has; 0 of few. Few of
        them are touched, which copies their pages.
        """
        value = vars(self.holder).get(self.name)
        if not isinstance(value, (list, dict)) or len(value) < FEWEST:
            return 0, 0
        sampled: list[Any] = (
            list(islice(value.items(), SAMPLED))
            if isinstance(value, dict)
            else [value[at] for at in range(0, len(value), len(value) // SAMPLED)]
        )
        each = sum(POINTER + _deep(item) for item in sampled) // len(sampled)
        return each * len(value), len(value)


@dataclass
class _Watched:
    """``first``: items when it was first looked at; ``bytes``: of those that came since. ``fetched``:
    samples that were fetched again since; ``stored``: items that it held more after these.
    """

    place: ContainerPlace
    first: int
    bytes: int = 0
    fetched: int = 0
    stored: int = 0

    def __post_init__(self) -> None:
        self._items = self.first

    @property
    def misses(self) -> bool:
        """Nearly each sample that was fetched again stored one item more: it holds no samples."""
        return self.fetched >= AGAIN and MISSED * self.fetched <= self.stored <= self.fetched

    def add(self, items: int, size: int, again: int) -> None:
        """It holds so many now, of which the newest has ``size`` bytes, after a batch of ``again``
        samples that all were fetched before (0: not all).
        """
        more = items - self._items
        if again:
            self.fetched += again
            self.stored += more
        if more > 0:
            self.bytes += more * size
        elif more < 0:
            self.bytes = self.bytes * items // self._items
        self._items = items


class FetchedBefore:
    """The samples that one process fetched of a dataset, by number."""

    def __init__(self) -> None:
        self._seen: set[Any] = set()

    def again(self, asked: Any) -> int:
        """How many samples a batch has, if all were fetched before, else 0."""
        batch = asked if isinstance(asked, (list, tuple)) else (asked,)
        if any(each is None for each in batch):  # what an iterable dataset is asked for
            return 0
        with suppress(TypeError):  # what cannot be hashed is no number
            if self._seen.issuperset(batch):
                return len(batch)
            if len(self._seen) < NOTED:
                self._seen.update(batch)
        return 0


class WorkerContainers:
    """The containers that a fetcher's dataset and collate function reach, as one worker has them."""

    def __init__(self, fetcher: Any) -> None:
        places = {(id(each.holder), each.name): each for each in _places(fetcher)}
        self._places = list(places.values())[:PLACES]
        self._watched: list[_Watched] = []
        info = get_worker_info()
        self._workers = 0 if info is None else info.num_workers
        self._largest = max(
            ((*place.objects(), place) for place in self._places),
            key=lambda each: each[0],
            default=(0, 0, None),
        )

    def begin(self) -> None:
        """A batch will be fetched, from which on it is watched what grows. What came since the last
        one, no sample has stored.
        """
        if not self._watched:
            self._watched = [_Watched(place, place.weighed()[0]) for place in self._places]
            return
        for each in self._watched:
            n, size, _ = each.place.weighed()
            each.add(n, size, 0)

    def grown(self, again: int) -> Iterator[dict[str, Any]]:
        """Those that hold more than at first, after a batch of ``again`` samples that all were
        fetched before: how many items more, and bytes.
        """
        for each in self._watched:
            n, size, kind = each.place.weighed()
            each.add(n, size, again)
            if n > each.first:
                more = {"kind": kind, "n": n - each.first, "bytes": each.bytes}
                told = {"beyond": each.misses, "fetched": each.fetched, "stored": each.stored}
                yield {**self._of(each.place), **more, **told}

    def copied(self, fetch: Callable[[], T]) -> tuple[T, list[dict[str, Any]]]:
        """What ``fetch`` returns, and how much it took off what is shared, with the container that
        has the most Python objects; nothing where there are few objects.
        """
        nbytes, n, place = self._largest
        if place is None or not nbytes:
            return fetch(), []
        shared = shared_bytes()
        result = fetch()
        copied = max(0, shared - shared_bytes())
        return result, [{**self._of(place), "n": n, "bytes": nbytes, "copied": copied}]

    def _of(self, place: ContainerPlace) -> dict[str, Any]:
        of = {"us": time.monotonic_ns() // 1000, "pid": os.getpid(), "workers": self._workers}
        return {**of, "module": place.module, "owner": place.owner, "name": place.name}


def _places(fetcher: Any) -> Iterator[ContainerPlace]:
    modules: dict[str, ModuleType] = {}
    for value in _reached([fetcher.dataset, fetcher.collate_fn]):
        of_function = isinstance(value, FunctionType)
        kind = value if of_function else type(value)
        if not _is_torchs(kind.__module__) and kind.__module__ in sys.modules:
            modules[kind.__module__] = sys.modules[kind.__module__]
        if of_function:
            continue
        for cls in (each for each in kind.__mro__ if not _is_torchs(each.__module__)):
            for name in _containers(cls):
                yield ContainerPlace(cls, cls.__module__, cls.__qualname__, name)
        for name in _containers(value):
            yield ContainerPlace(value, kind.__module__, kind.__qualname__, name)
    for key, module in modules.items():
        for name in _containers(module):
            yield ContainerPlace(module, key, "", name)


def _reached(first: list[Any]) -> Iterator[Any]:
    """Objects with attributes, and functions, from these on along attributes."""
    waiting, seen = deque(first), set[int]()
    while waiting and len(seen) < OBJECTS:
        value = waiting.popleft()
        if id(value) in seen or _opaque(value):
            continue
        seen.add(id(value))
        if isinstance(value, MethodType):
            waiting.append(value.__self__)
        else:
            yield value
            waiting.extend(list(vars(value).values()))


def _containers(holder: Any) -> list[str]:
    held = list(vars(holder).items())
    return [name for name, each in held if isinstance(each, CONTAINERS) and name[:2] != "__"]


def _opaque(value: Any) -> bool:
    opaque = (torch.Tensor, torch.nn.Module, ModuleType, type)
    return isinstance(value, opaque) or not hasattr(value, "__dict__")


def _is_torchs(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "builtins", "typing", "abc")


def weighed(container: Any) -> tuple[int, int, str]:
    """How many items it holds, the bytes of the newest, and what they are (``tensors``, ``arrays`` or
    ``values``). Those of containers inside it count one by one.
    """
    if not container:
        return 0, 0, "values"
    items = _items(container)
    newest = _newest(items)
    if isinstance(newest, CONTAINERS):
        newest_first = islice(
            reversed(items), NESTED
        )  # others stay untouched: a touch copies pages
        inside = [each for each in newest_first if isinstance(each, CONTAINERS) and each]
        of_newest = _size(_newest(_items(inside[0]))) if inside else (0, "values")
        return sum(map(len, inside)), *of_newest
    return len(container), *_size(newest)


def _items(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _newest(items: Any) -> Any:
    return next(iter(items) if isinstance(items, set) else reversed(items))


def _size(item: Any) -> tuple[int, str]:
    parts = item[:NESTED] if isinstance(item, (tuple, list)) else (item,)
    tensors = [each for each in parts if isinstance(each, torch.Tensor)]
    if tensors:
        return POINTER + sum(each.element_size() * each.numel() for each in tensors), "tensors"
    arrays = [each for each in parts if hasattr(each, "nbytes")]
    if arrays:
        return POINTER + sum(int(each.nbytes) for each in arrays), "arrays"
    return POINTER + sum(map(sys.getsizeof, parts)), "values"


def _deep(item: Any, depth: int = DEEPEST) -> int:
    """Bytes of an object and of what it holds, tensors and arrays as their heads alone."""
    inside: list[Any] = []
    if depth and isinstance(item, dict):
        inside = list(islice(item.values(), SAMPLED))  # records share their keys
    elif depth and isinstance(item, (list, tuple)):
        inside = list(item[:SAMPLED])
    elif depth and hasattr(item, "__dict__") and not _opaque(item):
        inside = [vars(item)]
    numbers = isinstance(item, torch.Tensor) or hasattr(item, "nbytes")
    own = 0 if numbers else sys.getsizeof(item)
    return own + sum(_deep(each, depth - 1) for each in inside)


def shared_bytes() -> int:
    """Bytes of this process's memory that another has too; 0 if unknown (``smaps_rollup``)."""
    try:
        with open("/proc/self/smaps_rollup", encoding="ascii") as file:
            shared = (line.split() for line in file if line.startswith("Shared_"))
            return sum(1024 * int(fields[1]) for fields in shared)
    except (OSError, ValueError, IndexError):
        return 0
