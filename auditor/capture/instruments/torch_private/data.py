"""DataLoaders: iterators, what they know, and the objects that fetch a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from auditor.capture.instruments.torch_private.look_up import on_instances, private

_ITERATOR: Final = "torch.utils.data.dataloader._BaseDataLoaderIter"

LoaderIterator: Any = private(_ITERATOR)
"""Class of all iterators of loaders: its ``__next__`` is timed. Without it: None. The loader's
probe then raises Missing when it is installed, and a drill poisons the first module's input in
place of a batch."""

FETCHERS: Final[tuple[Any, ...]] = tuple(
    each
    for each in (
        private("torch.utils.data._utils.fetch._MapDatasetFetcher"),
        private("torch.utils.data._utils.fetch._IterableDatasetFetcher"),
    )
    if each is not None
)
"""Classes that make a batch of samples. Without one: devices of the samples before collation are
not seen.
"""

workers_of: Callable[[Any], int] = on_instances(f"{_ITERATOR}._num_workers", 0)
"""Of an iterator whose loader was made before the recorder. Without it: 0."""

pins: Callable[[Any], bool] = on_instances(f"{_ITERATOR}._pin_memory", False)
"""The same: whether it pins memory. Without it: no."""

persistent: Callable[[Any], bool | None] = on_instances(f"{_ITERATOR}._persistent_workers")
"""The same: whether its workers stay for the next epoch; None where it has none. Without it: None,
which is unknown.
"""

prefetch: Callable[[Any], int | None] = on_instances(f"{_ITERATOR}._prefetch_factor")
"""The same: batches that each worker prepares ahead. Without it: None, which is unknown."""

index_sampler: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._index_sampler")
"""The same: what its indices come from. Without it: None, so the size of its batches is unknown."""

dataset_of: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._dataset")
"""The same: its dataset. Without it: None, and the loader is described as one over ``NoneType``."""

collate_of: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._collate_fn")
"""The same: its collate function. Without it: None, and it is described as ``NoneType``."""
