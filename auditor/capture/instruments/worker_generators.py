"""Random generators that a dataset brings into the worker processes of its loader: do two workers
draw the same numbers?

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

VISITS = 500
"""Objects that are looked at: a dataset may hold all samples in a list."""

ITEMS = 32
"""Items of a container that are looked at."""

Told = dict[str, Any]
"""Of one generator: ``worker``, its ``name`` and ``kind``, the class of its ``owner`` and the
``module`` of that, its state ``before`` and ``after`` the first batch.
"""


class FirstBatch:
    """The generators of one worker, before and after its first batch. Torch has seeded its own and
    NumPy's global generator by then, and ``worker_init_fn`` has run.
    """

    def __init__(self, fetcher: Any) -> None:
        info, self._found = get_worker_info(), {}
        self._worker = -1 if info is None else info.id
        if info is None or info.num_workers < 2 or isinstance(fetcher.dataset, IterableDataset):
            return
        self._found = {
            name: (each, owner, _state(each))
            for name, each, owner in generators_of(fetcher.dataset, fetcher.collate_fn)
        }

    def told(self) -> Iterator[Told]:
        """Those that were drawn from."""
        for name, (generator, owner, before) in self._found.items():
            after = _state(generator)
            if after != before:
                kind = f"{type(generator).__module__}.{type(generator).__name__}"
                yield {
                    "worker": self._worker,
                    "name": name,
                    "kind": kind,
                    "owner": owner.__qualname__,
                    "module": owner.__module__,
                    "before": before,
                    "after": after,
                }


def generators_of(dataset: Any, collate: Any) -> Iterator[tuple[str, Any, type]]:
    """Generators that dataset and collate function hold, by what leads to them, and the class of
    the object that has them; each once.
    """
    kinds = _kinds()
    waiting = deque([("dataset", dataset, object), ("collate_fn", collate, object)])
    seen: set[int] = set()
    for _ in range(VISITS):
        if not waiting:
            return
        name, value, owner = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, kinds):
            yield name, value, owner
        else:
            inside = _inside(name, value)
            waiting.extend((key, each, type(value)) for key, each in inside)


def _kinds() -> tuple[type, ...]:
    found: list[type] = [random.Random, torch.Generator]
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        found += [numpy.random.Generator, numpy.random.RandomState]
    return tuple(found)


def _inside(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (str, bytes, torch.Tensor, type)):
        return
    if isinstance(value, (list, tuple)):
        yield from ((f"{name}[{at}]", each) for at, each in enumerate(value[:ITEMS]))
    elif isinstance(value, dict):
        keys = list(value)[:ITEMS]
        yield from ((f"{name}[{key!r}]", value[key]) for key in keys if isinstance(key, str))
    else:
        held = getattr(value, "__dict__", None)
        if isinstance(held, dict):
            yield from ((f"{name}.{key}", each) for key, each in list(held.items()))
        yield from _around(name, value)


def _around(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What a function reaches: its object, its closure, and generators that are global where it, or
    the object's class, is defined.
    """
    owner = getattr(value, "__self__", None)
    if owner is not None:
        yield name, owner
    function = getattr(value, "__func__", value)
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield name, cell.cell_contents
        except ValueError:  # empty
            continue
    module = sys.modules.get(getattr(type(value), "__module__", ""))
    shared = getattr(function, "__globals__", None) or getattr(module, "__dict__", {})
    kinds = _kinds()
    for key, each in list(shared.items()):
        if isinstance(each, kinds):
            yield key, each


def _state(generator: Any) -> str:
    """The same for generators that will draw the same numbers, whatever process they are in."""
    if isinstance(generator, torch.Generator):
        state: Any = bytes(generator.get_state().tolist())
    elif isinstance(generator, random.Random):
        state = generator.getstate()
    elif hasattr(generator, "bit_generator"):
        state = generator.bit_generator.state
    else:
        state = generator.get_state()
    return hashlib.sha1(_plain(state).encode(), usedforsecurity=False).hexdigest()


def _plain(state: Any) -> str:
    """Its text: ``repr`` leaves out what is in the middle of a long array."""
    if isinstance(state, dict):
        return repr([(key, _plain(state[key])) for key in sorted(state)])
    if isinstance(state, (list, tuple)):
        return repr([_plain(each) for each in state])
    return repr(state.tolist()) if hasattr(state, "tolist") else repr(state)
