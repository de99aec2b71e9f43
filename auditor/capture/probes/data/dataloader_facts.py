"""What a DataLoader is: settings, places of dataset and collate function, tensors in a batch."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import io
import random
import time
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
)

from auditor.capture.instruments.environment import host_chance_kept
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.plain_tensor import bytes_of
from auditor.capture.instruments.torch_private import data
from auditor.capture.instruments.torch_private.data import (
    LoaderIterator,
    collate_of,
    dataset_of,
    index_sampler,
)
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.recordings.schema.data import LoaderRow

LONGEST_S = 3.0
"""Seconds for which samples are looked at."""

MOST_BATCHES = 20_000
"""Batches of an epoch that are read ahead."""

ALIKE = 64
"""Samples all over an epoch which, if they are of one size, stand for all."""

TENSORS = 64
"""Tensors of a batch or sample whose bytes count."""


class Largest(NamedTuple):
    """A batch, as the loader's collate function makes it; ``of`` is how many were looked at."""

    batch: Any
    nbytes: int
    of: int


class LargestBatches:
    """Loaders give the largest batch of an epoch in the place of their next one, each once.

    ``at`` is the program's line that took the first of them, None until then; ``of`` how many
    batches were looked at.
    """

    def __init__(self, context: Context, patches: Patches) -> None:
        self.at: int | None = None
        self.of = 0
        if LoaderIterator is None:
            return
        original, given = LoaderIterator.__next__, set[int]()

        @functools.wraps(original)
        def next_batch(iterator: Any) -> Any:
            batch = original(iterator)
            if id(iterator) in given:
                return batch
            given.add(id(iterator))
            try:
                largest = largest_batch(iterator)
            except Exception:  # a dataset that cannot be asked out of turn
                return batch
            if largest is None or largest.nbytes <= nbytes_of(batch):
                return batch
            self.of += largest.of
            self.at = self.at or context.frames.here()
            return largest.batch

        patches.attribute(LoaderIterator, "__next__", next_batch)


def largest_batch(iterator: Any) -> Largest | None:
    """Of the epoch that its sampler would draw. None of samples alike in size, or not indexed."""
    dataset, sampler, collate = dataset_of(iterator), index_sampler(iterator), collate_of(iterator)
    if dataset is None or isinstance(dataset, IterableDataset) or not callable(collate):
        return None
    with _chance_as_it_was(sampler):
        order = [each for each in islice(iter(sampler), MOST_BATCHES) if isinstance(each, list)]
        sizes = _sizes(dataset, order)
        looked = [each for each in order if all(number in sizes for number in each)]
        if not looked or len(set(sizes.values())) < 2:
            return None
        # Rows that are padded take the longest one's room, those that are joined their own.
        padded = max(looked, key=lambda each: len(each) * max(sizes[number] for number in each))
        joined = max(looked, key=lambda each: sum(sizes[number] for number in each))
        chosen = [padded] if joined is padded else [padded, joined]
        batches = [collate([dataset[number] for number in each]) for each in chosen]
    made = (Largest(batch, nbytes_of(batch), len(looked)) for batch in batches)
    return max(made, key=lambda each: each.nbytes)


def nbytes_of(batch: Any) -> int:
    """Bytes of a batch's tensors."""
    return sum(bytes_of(each) for each in tensors_in(batch, TENSORS))


def _sizes(dataset: Any, order: list[list[int]]) -> dict[int, int]:
    """Numbers that each sample holds, as far as the time allows; of some all over the epoch first."""
    until, sizes = time.monotonic() + LONGEST_S, dict[int, int]()
    numbers = [number for each in order for number in each]
    first = {*numbers[:: max(1, len(numbers) // ALIKE)], *numbers[-1:]}
    for number in (*first, *numbers):
        if time.monotonic() > until:
            break
        if len(sizes) >= len(first) and len(set(sizes.values())) == 1:
            break
        if number not in sizes:
            sizes[number] = _numbers_in(dataset[number])
    return sizes


def _numbers_in(sample: Any) -> int:
    if isinstance(sample, torch.Tensor):
        return sample.numel()
    if isinstance(sample, Mapping):
        return sum(map(_numbers_in, sample.values()))
    if isinstance(sample, (list, tuple)):
        plain = not sample or isinstance(sample[0], (int, float))
        return len(sample) if plain else sum(map(_numbers_in, sample))
    size = getattr(sample, "size", None)  # NumPy's arrays
    return size if isinstance(size, int) else len(sample) if isinstance(sample, str) else 1


@contextmanager
def _chance_as_it_was(sampler: Any) -> Iterator[None]:
    """What the samplers and the dataset draw is drawn again by the program."""
    inner = getattr(sampler, "sampler", sampler)
    own = getattr(inner, "generator", None)
    own = own if isinstance(own, torch.Generator) else torch.default_generator
    drawn = own.get_state(), torch.get_rng_state()
    with host_chance_kept():
        try:
            yield
        finally:
            own.set_state(drawn[0])
            torch.set_rng_state(drawn[1])


class LoaderOrigins:
    """Remembers it from :meth:`install` on; a framework's loader is the user's it came from."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._made_at: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._made_by_user: weakref.WeakSet[Any] = weakref.WeakSet()

    def install(self, patches: Patches) -> None:
        """Watch the constructor, until these are undone."""
        make_loader = DataLoader.__init__

        @functools.wraps(make_loader)
        def loader_init(loader: Any, *args: Any, **kwargs: Any) -> None:
            make_loader(loader, *args, **kwargs)
            self._note(loader)

        patches.attribute(DataLoader, "__init__", loader_init)

    def of(self, loader: Any) -> int | None:
        """The line: a number in ``sites``; None if it is not known."""
        with contextlib.suppress(TypeError):  # a subclass may not be hashable
            return self._made_at.get(loader)
        return None

    def _note(self, loader: Any) -> None:
        # a subclass may not be hashable, or compare in its own way
        with contextlib.suppress(Exception):
            frame, library = self._frames.user_frame()
            if frame is not None and library is None:
                self._made_by_user.add(loader)
            known = self._rebuilt_from(loader) if library is not None else None
            self._made_at[loader] = (
                known if known is not None or frame is None else self._frames.number(frame, library)
            )

    def _rebuilt_from(self, loader: Any) -> int | None:
        """Where the user made the one loader over its dataset: frameworks build theirs from it."""
        sites = {
            self._made_at.get(each) for each in self._made_by_user if each.dataset is loader.dataset
        }
        return sites.pop() if len(sites) == 1 else None


DEPTH = 3
"""Levels of containers and objects below the batch itself that are searched for tensors."""

VISITS_PER_TENSOR = 8
"""Objects visited for each tensor: a batch may drag a tokenizer's vocabulary along."""


@dataclasses.dataclass(frozen=True)
class LoaderFacts:
    """One kind of loader. Keeps only the dataset's class alive; equal loaders are one."""

    made_at: int | None
    workers: int
    pin_memory: bool
    persistent: bool | None
    batch_size: int | None
    dataset: type
    collate: str
    collate_file: str | None
    collate_line: int | None
    length: int | None
    samples: int | None
    sorted_classes: int | None = None
    open_file: bool = False
    draws: bool = False
    batches_file: str | None = None
    batches_line: int | None = None

    def row(self, loader: int, at: int | None) -> LoaderRow:
        """As the part ``loaders`` holds it, with the dataset's place in the source."""
        facts = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        file, line = place_of_class(self.dataset)
        facts |= {"dataset": self.dataset.__qualname__, "dataset_file": file, "dataset_line": line}
        return LoaderRow(loader=loader, at=at, **facts)


def describe_loader(loader: Any, made_at: int | None) -> LoaderFacts:
    """Settings as the user gave them; the iterator's may differ (no pinning without a GPU)."""
    return LoaderFacts(
        made_at,
        loader.num_workers,
        bool(loader.pin_memory),
        bool(loader.persistent_workers),
        loader.batch_size,
        dataset_class(loader.dataset),
        *place_of_callable(loader.collate_fn),
        _length(loader),
        None if loader.batch_size is None or _length(loader) is None else len(loader.sampler),
        sorted_classes(loader),
        keeps_open_file(loader.dataset),
        any(map(_is_generator, _held(loader.dataset))),
        *_place_of_batches(loader.batch_sampler or loader.sampler),
    )


def describe_iterator(iterator: Any) -> LoaderFacts:
    """What an iterator still knows whose loader was made before the recorder."""
    return LoaderFacts(
        None,
        data.workers_of(iterator),
        bool(data.pins(iterator)),
        data.persistent(iterator),
        getattr(data.index_sampler(iterator), "batch_size", None),
        dataset_class(data.dataset_of(iterator)),
        *place_of_callable(data.collate_of(iterator)),
        None,
        None,
        None,
        False,
        False,
        *_place_of_batches(data.index_sampler(iterator)),
    )


def _place_of_batches(sampler: Any) -> tuple[str | None, int | None]:
    """Where it is written what a batch is made of."""
    return place_of_callable(inspect.getattr_static(type(sampler), "__iter__", None))[1:]


def dataset_class(dataset: Any) -> type:
    """Its class; of a subset that of the whole."""
    return type(_root_dataset(dataset))


def _root_dataset(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


FILES = (io.FileIO, io.BufferedReader, io.BufferedRandom, io.TextIOWrapper)


def keeps_open_file(dataset: Any) -> bool:
    """Whether it holds an open file: worker processes would share its position."""
    return any(
        (isinstance(each, FILES) and not each.closed) or type(each).__module__.startswith("h5py.")
        for each in _held(dataset)
    )


def _held(dataset: Any) -> list[Any]:
    return [*(getattr(_root_dataset(dataset), "__dict__", None) or {}).values()]


def _is_generator(held: Any) -> bool:
    """NumPy need not be there."""
    numpy = type(held).__module__.startswith("numpy.random")
    return numpy or isinstance(held, random.Random | torch.Generator)


def _length(loader: Any) -> int | None:
    """Batches of an epoch, asked of torch's samplers only: a user's ``__len__`` may draw."""
    batches = loader.batch_sampler
    sampler = loader.sampler if batches is None or type(batches) is BatchSampler else batches
    if not type(sampler).__module__.startswith("torch.") or not hasattr(
        loader.dataset, "__getitem__"
    ):
        return None
    try:
        return len(sampler if batches is None else batches)
    except (TypeError, NotImplementedError):
        return None


LABELS = ("targets", "labels")
"""Attributes in which a dataset holds the class of each sample."""


def sorted_classes(loader: Any) -> int | None:
    """How many classes a loader goes through one after the other, in each epoch alike; None if
    it draws an order, or its dataset holds no classes, or not in their order.

    Classes are whole numbers from 0 on, each of which is there: lengths and times are no classes.
    Nothing of the program's is called.
    """
    batches, sampler = loader.batch_sampler, loader.sampler
    if type(sampler) is not SequentialSampler or type(batches) is not BatchSampler:
        return None
    if batches.sampler is not sampler or type(loader).__iter__ is not DataLoader.__iter__:
        return None
    try:
        labels = _labels(loader.dataset)
    except (TypeError, ValueError, IndexError, RuntimeError):  # no vector of numbers
        return None
    if labels is None or labels.dim() != 1 or labels.is_floating_point() or not labels.numel():
        return None
    steps = labels[1:].long() - labels[:-1].long()
    plain = int(labels[0]) == 0 and bool(((steps == 0) | (steps == 1)).all())
    return int(labels[-1]) + 1 if plain else None


def _labels(dataset: Any) -> torch.Tensor | None:
    indices = None
    held: Any
    if type(dataset) is Subset:
        dataset, indices = dataset.dataset, dataset.indices
    if type(dataset) is TensorDataset:
        held = dataset.tensors[1] if len(dataset.tensors) == 2 else None
    else:
        own = getattr(dataset, "__dict__", {})
        held = next((own[name] for name in LABELS if name in own), None)
        if held is None:
            held = next(filter(None, map(_seconds, (dataset, *own.values()))), None)
    if isinstance(held, list) and held and type(held[0]) is int:
        held = torch.tensor(held)
    if type(held) is not torch.Tensor or held.device.type != "cpu":
        return None
    return held if indices is None else held[torch.as_tensor(indices)]


def _seconds(pairs: Any) -> list[int] | None:
    if type(pairs) is not list or not pairs or type(pairs[0]) is not tuple or len(pairs[0]) != 2:
        return None
    return [pair[1] for pair in pairs] if type(pairs[0][1]) is int else None


def is_in_order(batch: Any) -> bool:
    """It holds a vector of whole numbers that never falls."""
    return any(
        each.dim() == 1
        and each.numel() > 1
        and not (each.is_floating_point() or each.is_complex() or each.device.type != "cpu")
        and bool((each[1:] >= each[:-1]).all())
        for each in tensors_in(batch, VECTORS)
    )


def lengths_in(batch: Any) -> list[int] | None:
    """Width and lengths of the rows of a batch's first large padded matrix, or of one with a tensor of
    pairs of its positions beside it (as wide twice); else None.
    """
    held = list(tensors_in(batch, VECTORS))
    largest = max((each.numel() for each in held), default=0)
    pairs = {each.shape[:2] for each in held if each.dim() > 2 and each.shape[1] == each.shape[2]}
    for each in held:
        whole = not (each.is_floating_point() or each.is_complex() or each.device.type != "cpu")
        large = 2 * each.numel() >= largest or each.shape in pairs
        if whole and large and each.dim() == 2 and 1 < len(each) <= ROWS and each.shape[1] > 1:
            for rows in (each, each.flip(1)):
                lengths = _lengths(rows)
                if lengths is not None:
                    return [each.shape[1], *lengths]
    return None


def _lengths(rows: torch.Tensor) -> list[int] | None:
    """Lengths of rows without the one value that fills up their ends. Of a mask it is 0."""
    padding = rows[:, -1].mode().values
    is_padding = rows == padding
    filled = is_padding.flip(1).long().cumprod(1).sum(1)
    least, most = int(filled.min()), int(filled.max())
    if least == most or most == rows.shape[1] or int(is_padding.sum()) != int(filled.sum()):
        return None
    if int(padding) < 0 or (padding and bool((rows[~is_padding] == 0).all())):
        return None  # targets that a loss leaves out; what a mask keeps
    lengths: list[int] = (rows.shape[1] - filled).tolist()
    triangle = len(rows) == rows.shape[1] and len(set(lengths)) == len(lengths)
    return None if triangle else lengths


VECTORS = 16
"""Tensors of a batch that are looked at for its labels, and for padding."""

ROWS = 512
"""Rows of a matrix up to which its padding is looked at."""


def place_of_callable(function: Any) -> tuple[str, str | None, int | None]:
    """Qualified name, file and line of the function behind partials, methods and callables."""
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, types.MethodType):
        function = function.__func__
    called = inspect.getattr_static(type(function), "__call__", None)
    if isinstance(called, types.FunctionType):
        function = called
    function = inspect.unwrap(function) if isinstance(function, types.FunctionType) else function
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return name, code and code.co_filename, code and code.co_firstlineno


def place_of_class(cls: type) -> tuple[str | None, int | None]:
    """File and line of a class; where its source is not to be had, of its first method."""
    try:
        return inspect.getsourcefile(cls), inspect.getsourcelines(cls)[1]
    except (TypeError, OSError):
        codes = [
            value.__code__ for value in vars(cls).values() if isinstance(value, types.FunctionType)
        ]
    first = min(codes, key=lambda code: code.co_firstlineno, default=None)
    return (first.co_filename, first.co_firstlineno) if first is not None else (None, None)


def tensors_in(value: Any, cap: int) -> Iterator[torch.Tensor]:
    """The first ``cap`` tensors in nested mappings, sequences and objects, breadth first."""
    waiting: deque[tuple[Any, int]] = deque([(value, 0)])
    for _ in range(VISITS_PER_TENSOR * cap):
        if not waiting or cap <= 0:
            return
        current, depth = waiting.popleft()
        if isinstance(current, torch.Tensor):
            cap -= 1
            yield current
        elif depth <= DEPTH:
            waiting.extend(
                (inner, depth + 1) for inner in islice(_inside(current), VISITS_PER_TENSOR * cap)
            )


def _inside(value: Any) -> Iterable[Any]:
    if value is None or isinstance(
        value, (str, bytes, int, float, type, types.ModuleType, types.FunctionType)
    ):
        return ()
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (list, tuple, set, frozenset)):
        return value
    held = getattr(value, "__dict__", None)
    return list(held.values()) if isinstance(held, dict) else ()
