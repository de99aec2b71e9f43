"""The largest batch that a loader would give in an epoch, made ahead of its turn."""

from __future__ import annotations

import functools
import random
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.plain_tensor import bytes_of
from auditor.capture.instruments.torch_private.data import (
    LoaderIterator,
    collate_of,
    dataset_of,
    index_sampler,
)
from auditor.capture.probes.base import Context
from auditor.capture.probes.data.dataloader_facts import tensors_in

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
    """Of the epoch as the loader's sampler would draw it next. None where samples are alike in
    size, or cannot be asked for by an index.
    """
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
    numpy_random = sys.modules.get("numpy.random")
    drawn = own.get_state(), torch.get_rng_state(), random.getstate()
    array = numpy_random.get_state() if numpy_random is not None else None
    try:
        yield
    finally:
        own.set_state(drawn[0])
        torch.set_rng_state(drawn[1])
        random.setstate(drawn[2])
        if numpy_random is not None:
            numpy_random.set_state(array)
