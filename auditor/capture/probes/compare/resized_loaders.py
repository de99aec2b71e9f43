"""Loaders that are made at a line of the program with another batch size than it gives them."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterator, Sized
from typing import Any, TypeGuard, cast

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, Sampler

from auditor.capture.instruments.call_places import comes_from
from auditor.capture.instruments.monkeypatch import Patches
from auditor.runs.plan import Change

BATCHES = 8
"""Batches that a dataset must be able to give: one that has fewer samples gives them again."""


class Repeated(Sampler[int]):
    """The samples of a dataset in order, from the start again until there are enough."""

    def __init__(self, samples: int, enough: int) -> None:
        self._samples = samples
        self._enough = enough

    def __iter__(self) -> Iterator[int]:
        return (number % self._samples for number in range(self._enough))

    def __len__(self) -> int:
        return self._enough


class ResizedLoaders:
    """Gives the loaders that are made at the change's lines their batch size; ``changed`` is called
    for each.
    """

    def __init__(self, change: Change, changed: Callable[[], None]) -> None:
        self._change = change
        self._changed = changed
        self._places = {(os.path.realpath(file), line) for file, line in change.loaders}
        self._samplers: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that cut batches of the new size already."""
        self._resized: set[tuple[int, int]] = set()
        """Dataset and new size of the loaders so far."""

    def install(self, patches: Patches) -> None:
        """Change what the constructor is given from now on."""
        make: Any = DataLoader.__init__
        signature = inspect.signature(make)

        @functools.wraps(make)
        def made(loader: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(loader, *args, **kwargs)
            meant = comes_from(sys._getframe(1), self._places)
            if meant:
                self._resize(given.arguments)
            make(*given.args, **given.kwargs)
            if meant and getattr(loader, "batch_sampler", None) is not None:
                self._samplers.add(loader.batch_sampler)

        patches.attribute(DataLoader, "__init__", made)

    def _resize(self, arguments: dict[str, Any]) -> None:
        """A loader that a framework builds from one of these has the new size already."""
        sampler = arguments.get("batch_sampler")
        if sampler is not None:
            size = getattr(sampler, "batch_size", None)
            if _whole(size) and sampler not in self._samplers:
                sampler.batch_size = self._new(size)
                self._changed()
            return
        size, dataset = arguments.get("batch_size", 1), arguments.get("dataset")
        if _whole(size) and (id(dataset), size) not in self._resized:
            new = arguments["batch_size"] = self._new(size)
            self._resized.add((id(dataset), new))
            _repeat(arguments, BATCHES * new)
            self._changed()

    def _new(self, size: int) -> int:
        more, less = self._change.batch
        return max(1, size * more // less)


def _repeat(arguments: dict[str, Any], enough: int) -> None:
    """Let a dataset that is too small for a few batches give its samples again."""
    dataset = arguments.get("dataset")
    if arguments.get("sampler") is not None or isinstance(dataset, IterableDataset):
        return
    try:
        samples = len(cast("Sized", dataset))
    except TypeError:  # it has no length
        return
    if not 0 < samples < enough:
        return
    shuffled = arguments.pop("shuffle", False)
    arguments["sampler"] = (
        RandomSampler(cast("Sized", dataset), num_samples=enough)
        if shuffled
        else Repeated(samples, enough)
    )


def _whole(size: Any) -> TypeGuard[int]:
    return isinstance(size, int) and not isinstance(size, bool) and size > 0
