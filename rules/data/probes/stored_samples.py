"""Rows that a dataset stores, and that are others when their sample was fetched."""

import contextlib
import ctypes
import operator
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from types import FunctionType
from typing import Any

import torch
from torch.utils.data import Dataset, IterableDataset, Subset, get_worker_info

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.data import FETCHERS
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.graph import CensusRow

FETCHES = 64
"""Batches of a pass that are looked at."""

SAMPLES = 2
"""Of them the samples, and of these the parts."""

ATTRIBUTES, PARTS = 32, 8
DEEPEST = 3
"""Datasets in one another."""

MOST_BYTES = 4 << 20
"""A row beyond that is not looked at."""

FEWEST = 2
"""Rows that changed from which it is written."""


@dataclass
class _Stored:
    """What of one attribute was seen: which rows changed, and how often later again, or not."""

    at: int
    name: str
    changed: set[tuple[int, int]] = field(default_factory=set)
    watched: set[tuple[int, int]] = field(default_factory=set)
    again: int = 0
    still: int = 0


@dataclass
class _StoredSample:
    attribute: str
    held: Any
    """An array, or a tensor."""
    index: int | None
    """Its row; None if it is a row itself."""
    values: Any = None


class StoredSamplesProbe(Probe):
    """Writes ``census``: one row for each attribute of a dataset whose rows a fetch changes. Samples
    that workers fetch are not looked at: these write into copies of their own.
    """

    name = "stored_samples"
    parts = ("census",)
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._left = FETCHES
        self._stored: dict[tuple[int, str], _Stored] = {}
        self._rows: list[tuple[int, int, _StoredSample]] = []
        self._owner: tuple[Any, int] | None = None

    def start(self) -> None:
        super().start()
        self._left = FETCHES
        for each in FETCHERS:
            self._patches.around(each, "fetch", before=self._fetches, after=self._fetched)

    def stop(self) -> None:
        super().stop()
        stored, self._stored = self._stored, {}
        self._rows, self._owner = [], None
        for (_, attribute), each in stored.items():
            if len(each.changed) >= FEWEST and (each.again or not each.still):
                n, of = len(each.changed), len(each.watched)
                row = CensusRow(kind="sample", at=each.at, name=each.name, other=attribute)
                row.n, row.steps = n, of
                self.context.add(row)

    def _fetches(self, fetcher: Any, asked: Any) -> None:
        """Keep a copy of the rows of some of these samples."""
        self._rows, self._owner = [], None
        if self._left and get_worker_info() is None and threading.get_ident() == self._thread:
            with contextlib.suppress(Exception):  # a dataset can be anything
                self._keep_rows(fetcher, asked)

    def _keep_rows(self, fetcher: Any, asked: Any) -> None:
        dataset: Any = fetcher.dataset
        indices = [operator.index(each) for each in (asked if isinstance(asked, list) else [asked])]
        while isinstance(dataset, Subset):
            indices = [operator.index(dataset.indices[each]) for each in indices]
            dataset = dataset.dataset
        at = self._getitem(dataset)
        if at is None or isinstance(dataset, IterableDataset):
            return
        self._left -= 1
        self._owner = dataset, at
        known = {key for each in self._stored.values() for key in each.changed}
        indices.sort(key=lambda each: (id(dataset), each) not in known)
        for index in dict.fromkeys(indices[:SAMPLES]):
            for row in islice(_rows(dataset, index, DEEPEST), PARTS):
                row.values = _values_of(row)
                if row.values is not None and not _is_empty(row.values):
                    self._rows.append((id(dataset), index, row))

    def _getitem(self, dataset: Any) -> int | None:
        """The line where the user's class says what a sample is."""
        function = getattr(type(dataset), "__getitem__", None)
        code = function.__code__ if isinstance(function, FunctionType) else None
        if code is None or not self.context.frames.is_user(code.co_filename):
            return None
        return self.context.frames.site(code.co_filename, code.co_firstlineno, code.co_qualname)

    def _fetched(self, _: Any, fetcher: Any, asked: Any) -> None:
        rows, owner = self._rows, self._owner
        self._rows, self._owner = [], None
        if owner is None:
            return
        dataset, at = owner
        with contextlib.suppress(Exception):
            self._compare(rows, dataset, at)

    def _compare(self, rows: list[tuple[int, int, _StoredSample]], dataset: Any, at: int) -> None:
        for number, index, row in rows:
            new = _Stored(at, type(dataset).__name__)
            stored = self._stored.setdefault((at, row.attribute), new)
            key, now = (number, index), _values_of(row)
            stored.watched.add(key)
            differs = now is not None and not _is_close(row.values, now)
            if key in stored.changed:
                stored.again += differs
                stored.still += not differs
            elif differs:
                stored.changed.add(key)


def _rows(dataset: Any, index: int, deep: int) -> Iterator[_StoredSample]:
    """The rows of a sample, in what a dataset has by name; below other datasets that it has, too."""
    many = len(dataset)
    if not 0 <= index < many:
        return
    for name, held in islice(list(vars(dataset).items()), ATTRIBUTES):
        if isinstance(held, Dataset) and not isinstance(held, IterableDataset):
            if deep and len(held) == many:  # type: ignore[arg-type]  # a map-style one
                yield from (
                    _StoredSample(name, each.held, each.index)
                    for each in _rows(held, index, deep - 1)
                )
        elif isinstance(held, list | tuple) and len(held) == many:
            for each in _parts(held[index]):
                yield _StoredSample(name, each, None)
        else:
            for each in _parts(held):
                if each.ndim > 1 and len(each) == many:
                    yield _StoredSample(name, each, index)


def _parts(held: Any) -> Iterator[Any]:
    """Arrays and tensors of some size: it, or in it."""
    inside = held.values() if isinstance(held, dict) else held
    several = isinstance(held, list | tuple | dict) and len(held) <= PARTS
    for each in inside if several else [held]:
        if _is_array(each) and each.ndim > 0:
            yield each


def _is_array(value: Any) -> bool:
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biufc"
    if not isinstance(value, torch.Tensor):
        return False
    tensor = plain(value)
    on_host = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return on_host and type(tensor) is torch.Tensor and tensor.is_contiguous()


def _values_of(row: _StoredSample) -> Any:
    """Its values, copied; None if they are too many or too few. No operator of torch runs."""
    import numpy as np

    if not isinstance(row.held, torch.Tensor):
        values = row.held if row.index is None else row.held[row.index]
        return np.array(values) if values.size > 1 and values.nbytes <= MOST_BYTES else None
    tensor = plain(row.held)
    size = tensor.nbytes if row.index is None else tensor.nbytes // max(1, len(tensor))
    if size > MOST_BYTES or size <= tensor.itemsize or not tensor.is_contiguous():
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    kind = name if hasattr(np, name) else "uint8"
    first = tensor.data_ptr() + size * (row.index or 0)
    return np.frombuffer(ctypes.string_at(first, size), dtype=kind)


def _is_empty(values: Any) -> bool:
    """All its numbers are one, or none is a number: nothing is stored there yet."""
    import numpy as np

    return bool((values == values.flat[0]).all() or np.isnan(values).all())


def _is_close(before: Any, now: Any) -> bool:
    """What is brought to one form again, as to a norm of 1, differs by rounding alone."""
    import numpy as np

    if before.dtype.kind not in "fc":
        return np.array_equal(before, now)
    return before.shape == now.shape and np.allclose(before, now, 1e-4, 1e-6, equal_nan=True)
