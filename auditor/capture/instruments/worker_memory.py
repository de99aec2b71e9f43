"""Inside a worker process of a DataLoader: which containers of its dataset, or of the modules around
it, hold more after each batch.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch.utils.data import get_worker_info

CONTAINERS = (list, dict, set, deque)

OBJECTS = 64
"""Objects that are looked into, at most."""

PLACES = 256
"""Containers that are watched, at most."""

NESTED = 256
"""Containers in one of them that are counted, at most: the newest ones."""

POINTER = 8
"""Bytes of a place in a list."""


@dataclass(eq=False)
class ContainerPlace:
    """An attribute, or a global, that is a container. ``owner`` names its class, and is empty of a
    global.
    """

    holder: Any
    module: str
    owner: str
    name: str

    def weighed(self) -> tuple[int, int, str]:
        """See :func:`weighed`; nothing where it is no container any more."""
        value = vars(self.holder).get(self.name)
        return weighed(value) if isinstance(value, CONTAINERS) else (0, 0, "values")


class WorkerContainers:
    """The containers that a fetcher's dataset and collate function reach, as one worker has them."""

    def __init__(self, fetcher: Any) -> None:
        places = {(id(each.holder), each.name): each for each in _places(fetcher)}
        self._first = [(each, each.weighed()) for each in list(places.values())[:PLACES]]
        info = get_worker_info()
        self._workers = 1 if info is None else info.num_workers

    def grown(self) -> Iterator[dict[str, Any]]:
        """Those that hold more than at first, after a batch: how many items more, and bytes."""
        us = time.monotonic_ns() // 1000
        for place, first in self._first:
            now = place.weighed()
            if now[0] > first[0]:
                of = {"us": us, "pid": os.getpid(), "workers": self._workers, "kind": now[2]}
                at = {"module": place.module, "owner": place.owner, "name": place.name}
                yield {**of, **at, "n": now[0] - first[0], "bytes": now[1] - first[1]}


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
    """How many items it holds, their bytes if all are as large as the newest, and what they are
    (``tensors``, ``arrays`` or ``values``). Those of containers inside it count one by one.
    """
    if not container:
        return 0, 0, "values"
    items = _items(container)
    newest = _newest(items)
    if isinstance(newest, CONTAINERS):
        inside = [each for each in list(items)[-NESTED:] if isinstance(each, CONTAINERS)]
        of_each = [(len(each), *_size(_newest(_items(each)))) for each in inside if each]
        kind = of_each[-1][2] if of_each else "values"
        return sum(n for n, _, _ in of_each), sum(n * size for n, size, _ in of_each), kind
    size, kind = _size(newest)
    return len(container), len(container) * size, kind


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
