"""DataLoaders: iterators, what they know, and the objects that fetch a batch."""

from collections.abc import Callable
from typing import Any, Final

from auditor.capture.instruments.torch_private.look_up import needed, on_instances, private

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
"""Classes that make a batch of samples. Without one: devices of its samples are not seen."""

workers_of: Callable[[Any], int] = on_instances(f"{_ITERATOR}._num_workers", 0)
"""Of an iterator whose loader was made before the recorder. Without it: 0."""

pins: Callable[[Any], bool] = on_instances(f"{_ITERATOR}._pin_memory", False)
"""Whether the loader of an iterator pins memory. Without it: no."""

yielded: Callable[[Any], int] = on_instances(f"{_ITERATOR}._num_yielded", 0)
"""Batches that the iterator returned in this epoch. Without it: 0, and none is the first."""

persistent: Callable[[Any], bool | None] = on_instances(f"{_ITERATOR}._persistent_workers")
"""Whether the iterator's workers stay for the next epoch. Without it: None, unknown."""

index_sampler: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._index_sampler")
"""The iterator's source of indices. Without it: None, so the size of its batches is unknown."""

dataset_of: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._dataset")
"""The iterator's dataset. Without it: None; the loader is described as one over ``NoneType``."""

collate_of: Callable[[Any], Any] = on_instances(f"{_ITERATOR}._collate_fn")
"""The iterator's collate function. Without it: None, and it is described as ``NoneType``."""

_WORKER: Final = "torch.utils.data._utils.worker"
_WITH_WORKERS: Final = "torch.utils.data.dataloader._MultiProcessingDataLoaderIter"

WORKER_LOOP: Final = "_worker_loop"
"""Name of the function that worker processes run. Without it: no watch looks for that name."""

WORKER_MODULE: Any = private(_WORKER)
"""Where torch looks it up. Without it: None; what loading does in workers is not seen."""

worker_loop: Any = needed(f"{_WORKER}.{WORKER_LOOP}")
"""The function, as it was when this module was imported. Without it: Missing when it is called."""

NEXT_INDEX: Final = "_next_index"
"""Name of the method that draws a batch's indices. Without it: its time is other work's."""

SHUTDOWN: Final = "_shutdown_workers"
"""Name of the method that ends workers. Without it: see ``has_shutdown``."""

WORKER_ITERATOR: Any = private(_WITH_WORKERS)
"""Class of the iterators that have workers. Without it: None."""

worker_processes: Callable[[Any], Any] = on_instances(f"{_WITH_WORKERS}._workers", ())
"""Its worker processes. Without it: none, and their waits for a processor are not known."""

has_shutdown: Final[bool] = private(f"{_WITH_WORKERS}.{SHUTDOWN}") is not None
"""Whether it has that method. Without it: False, and the time that ending takes is in no wait."""
