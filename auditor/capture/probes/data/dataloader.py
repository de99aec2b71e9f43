"""DataLoaders: how long the step waits for them, and on which device what they yield lies."""

from __future__ import annotations

import contextlib
import functools
import linecache
import shutil
import tempfile
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.data import DataLoader, get_worker_info

from auditor.capture.instruments.environment import default_device
from auditor.capture.instruments.loader_workers import (
    ASKED,
    COPIED,
    DRAWS,
    GROWN,
    LISTS,
    READS,
    ArrayLists,
    FileReads,
    Frame,
    WatchedLoop,
    frames_of,
    stack_of,
    told,
    told_of,
)
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.stack_sampler import StackSampler
from auditor.capture.instruments.torch_private.data import (
    FETCHERS,
    NEXT_INDEX,
    SHUTDOWN,
    WORKER_ITERATOR,
    WORKER_LOOP,
    WORKER_MODULE,
    LoaderIterator,
    has_shutdown,
    worker_processes,
)
from auditor.capture.instruments.torch_private.look_up import Missing
from auditor.capture.instruments.user_frames import LOADER
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import (
    LoaderFacts,
    LoaderOrigins,
    describe_iterator,
    describe_loader,
    is_in_order,
    lengths_in,
    tensors_in,
)
from auditor.capture.probes.data.worker_kept import add_copied, add_grown
from auditor.capture.probes.step.clock import RunQueue
from auditor.capture.probes.sync.device_copies import mark_batch
from auditor.recordings.schema.data import (
    BatchRow,
    DrawsRow,
    ListedRow,
    LoaderRow,
    LoadingRow,
    RereadRow,
)
from auditor.recordings.schema.sync import WorkerKeptRow, WorkerPagesRow

DEEPEST = 16
"""User frames of a stack that are written down, from the loader's on."""

_Key = tuple[Any, str, str, tuple[int, ...]]


class LoadingStacks:
    """Writes ``loading``, ``draws``, ``listed``, ``reread``, ``worker_kept`` and ``worker_pages``.
    Workers are met when they are started, and asked when the diagnostic pass begins: they may live longer than a pass.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._always = Patches()
        self._sampler = StackSampler()
        self._folder: Path | None = None
        self._loop: WatchedLoop | None = None
        self._starting: list[Any] = []
        """What their starters are known by, by the number that workers are given."""
        self._on = False
        self._patches = Patches()
        self._lists = ArrayLists(self._place)
        self._reads = FileReads(self._place_in_step)

    def _place(self) -> int | None:
        return self._context.frames.here() if self._context.in_step else None

    def _place_in_step(self) -> tuple[int, int] | None:
        at = self._place()
        return None if at is None else (at, self._context.step)

    def uninstall(self) -> None:
        """Put torch's worker loop back, and remove what workers wrote."""
        self._always.undo()
        self._loop = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def starts_workers(self, owner: Any) -> None:
        """Workers of this loader are about to be started; ``owner`` is hashable."""
        self._sampler.rest()
        if self._context.device.shadow or WORKER_MODULE is None:
            return  # a rehearsal has no times
        if self._folder is None or self._loop is None:
            self._folder = Path(tempfile.mkdtemp(prefix="audit-loading-"))
            self._loop = WatchedLoop(str(self._folder))
            self._always.attribute(WORKER_MODULE, WORKER_LOOP, self._loop)
            self._ask()
        if owner not in self._starting:
            self._starting.append(owner)
        self._loop.loader = self._starting.index(owner)

    # -- the diagnostic pass -----------------------------------------------------------------------

    def start(self) -> None:
        for row in (LoadingRow, DrawsRow, ListedRow, RereadRow, WorkerKeptRow, WorkerPagesRow):
            self._context.writer.touch(row.part)
        self._on = not self._context.device.shadow
        if self._on:
            self._lists.watch(self._patches.attribute)
            self._reads.watch(self._patches.attribute)
        self._ask()

    def stop(self, number: Callable[[Any], int]) -> None:
        """Look no more, and write what was seen; ``number`` gives an owner's in the recording."""
        if not self._on:
            return
        self._on = False
        self._patches.undo()
        self._ask()
        self._sampler.end()
        self._sampler.rest()
        self._write(number)
        self._write_calls(number)
        self._write_draws(number)
        add_grown(self._context, self._of_workers(GROWN))
        add_copied(self._context, self._of_workers(COPIED), number)

    def _ask(self) -> None:
        if self._folder is not None:
            with contextlib.suppress(OSError):
                asked = self._folder / ASKED
                asked.touch() if self._on else asked.unlink(missing_ok=True)

    def rest(self) -> None:
        """End the thread that looks: the process may be about to fork."""
        self._sampler.rest()

    @property
    def sampler(self) -> StackSampler | None:
        """Begins and ends a wait of the step's thread; None if no probe watches."""
        return self._sampler if self._on else None

    # -- rows --------------------------------------------------------------------------------------

    def _write(self, number: Callable[[Any], int]) -> None:
        seen: defaultdict[_Key, list[float]] = defaultdict(lambda: [0.0, 0.0])

        def add(owner: Any, where: str, frames: list[Frame], us: float, looks: int) -> None:
            total = seen[(owner, where, phase_of(frames), self._users(frames))]
            total[0] += us
            total[1] += looks

        for (owner, stack), (us, looks) in self._sampler.taken().items():
            add(owner, "step", frames_of(stack), us, looks)
        for loader, us, looks, frames in () if self._folder is None else told(self._folder):
            if loader < len(self._starting):
                add(self._starting[loader], "worker", frames, us, looks)
        for (owner, where, phase, sites), (total_us, often) in seen.items():
            self._context.add(
                LoadingRow(
                    loader=number(owner),
                    where=where,
                    phase=phase,
                    stack=list(sites),
                    us=total_us,
                    n=int(often),
                )
            )

    def _write_calls(self, number: Callable[[Any], int]) -> None:
        """Lists of arrays, and files that are read whole: of the step's thread, and of workers."""
        rows: dict[tuple[Any, ...], ListedRow | RereadRow] = {}

        def add(
            kind: type[ListedRow | RereadRow], at: Any, loader: int | None, seen: Mapping[str, Any]
        ) -> None:
            named = {"name": seen["name"]} if kind is RereadRow else {}
            key = kind, at, loader, *named.values()
            if key not in rows:
                where = "step" if loader is None else "worker"
                rows[key] = kind(at=at, where=where, loader=loader, **named)
            _add_up(rows[key], seen)

        for at, listed in self._lists.taken().items():
            add(ListedRow, at, None, vars(listed))
        for place, reads in self._reads.taken().items():
            for read in reads:
                add(RereadRow, cast("tuple[int, int]", place)[0], None, read.row())
        for kind, told_as in ((ListedRow, LISTS), (RereadRow, READS)):
            for owner, seen in self._of_workers(told_as):
                with contextlib.suppress(ValueError, KeyError, TypeError):
                    sites = self._users(stack_of(seen))
                    for at in sites[-1:]:
                        add(kind, at, number(owner), seen)
        for row in rows.values():
            self._context.add(row)

    def _write_draws(self, number: Callable[[Any], int]) -> None:
        same: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
        for owner, drawn in self._of_workers(DRAWS):
            with contextlib.suppress(KeyError, TypeError):
                what = (
                    drawn[key] for key in ("name", "kind", "owner", "module", "before", "after")
                )
                same[(owner, *what)].add(drawn["worker"])
        for (owner, name, kind, holder, module, *_), workers in same.items():
            if len(workers) > 1:
                row = DrawsRow(loader=number(owner), name=name, kind=kind, workers=sorted(workers))
                row.owner, row.module = holder, module
                self._context.add(row)

    def _of_workers(self, kind: str) -> Iterator[tuple[Any, dict[str, Any]]]:
        for loader, row in () if self._folder is None else told_of(self._folder, kind):
            if loader < len(self._starting):
                yield self._starting[loader], row

    def _users(self, frames: list[Frame]) -> tuple[int, ...]:
        """Sites of the user's frames, outermost first."""
        is_user, site = self._context.frames.is_user, self._context.frames.site
        return tuple(site(*each) for each in reversed(frames) if is_user(each[0]))[:DEEPEST]


SUMMED = ("n", "us", "fetch_us", "arrays", "numbers", "again", "batches")


def _add_up(row: Any, seen: Mapping[str, Any]) -> None:
    for name in SUMMED:
        if hasattr(row, name):
            setattr(row, name, getattr(row, name) + seen.get(name, 0))
    if seen.get("bytes", 0) > getattr(row, "bytes", 0):
        row.bytes, row.path = seen["bytes"], seen["path"]


def phase_of(frames: Iterable[Frame]) -> str:
    """What the loader is at: ``sampler``, ``dataset``, ``collate`` or ``other`` (as waiting)."""
    for file, line, name in frames:
        if LOADER not in file:
            continue
        called = name.rpartition(".")[2]
        if called == NEXT_INDEX:
            return "sampler"
        if called == "fetch":
            return "collate" if "collate_fn" in linecache.getline(file, line) else "dataset"
    return "other"


# -- worker queues ---------------------------------------------------------------------------------
# How long the worker processes of loaders were ready to run while something else had the
# processor.

MOST = 8
"""Workers of one loader that are asked, some 30 us each and step: they wait alike."""


class WorkerQueues:
    """The kernel's own count of a process's first thread, in which a worker loads
    (``/proc/<pid>/schedstat``, second number, in ns; Documentation/scheduler/sched-stats.rst).
    """

    def __init__(self) -> None:
        self._told: dict[int, int] = {}

    def longest_us(self, workers: Iterable[int]) -> float | None:
        """The longest wait for a processor of these processes since asked last; None if unknown."""
        waits: list[int] = []
        for pid in list(workers)[:MOST]:
            with contextlib.suppress(OSError, IndexError):  # it ended; no such count
                now = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
                waits.append(now - self._told.get(pid, 0))
                self._told[pid] = now
        return max(waits) / 1e3 if waits else None


# -- dataloader ------------------------------------------------------------------------------------

TENSORS_SEEN = 1000
"""Tensors of a batch that are looked at."""

SAMPLES_SEEN, SAMPLE_TENSORS_SEEN = 16, 64
"""Samples and tensors of a batch that are looked at: samples of a dataset lie alike."""


@dataclass
class _Waited:
    """What one loader did in one step."""

    n: int = 0
    us: float = 0.0
    made: int = 0
    start_us: float = 0.0
    bytes: int = 0
    devices: Counter[str] = field(default_factory=Counter)
    sample_devices: set[str] = field(default_factory=set)
    in_order: int = 0
    texts: list[list[int]] = field(default_factory=list)


class DataLoaderProbe(Probe):
    """Writes ``loaders`` and ``batches``, and ``loading``, ``draws``, ``listed``, ``reread``,
    ``worker_kept`` and ``worker_pages`` through :class:`LoadingStacks`.

    Only the outermost loader on the step's own thread counts: what a dataset reads from a loader of
    its own is part of the outer wait. The quiet pass takes times only.
    """

    name = "loader"
    parts = (
        "loaders",
        "batches",
        "loading",
        "draws",
        "listed",
        "reread",
        "worker_kept",
        "worker_pages",
    )
    passes = frozenset({"quiet", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._facts: weakref.WeakKeyDictionary[Any, LoaderFacts] = weakref.WeakKeyDictionary()
        self._numbers: dict[LoaderFacts, int] = {}
        self._consumed_at: dict[LoaderFacts, int | None] = {}
        self._iterated_at: dict[LoaderFacts, int | None] = {}
        self._started: weakref.WeakSet[Any] = weakref.WeakSet()
        """Iterators that begin, and of which no batch was taken yet."""
        self._stacks = LoadingStacks(context)
        self._step: dict[LoaderFacts, _Waited] = {}
        self._queue = RunQueue()
        self._workers = WorkerQueues()
        self._inside = False
        self._fetching = False
        self._sample_devices: set[str] = set()

    # -- who made what: from the start, cheap ------------------------------------------------------

    def install(self) -> None:
        if LoaderIterator is None:
            raise Missing("torch.utils.data.dataloader._BaseDataLoaderIter")
        self._origins.install(self._always)
        self._always.on_undo(self._stacks.uninstall)
        self._always.around(LoaderIterator, "__init__", before=self._note_iterator)

    def _note_iterator(self, iterator: Any, loader: Any, *_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):  # a subclass may have settings of its own
            facts = self._facts[iterator] = describe_loader(loader, self._origins.of(loader))
            if facts.workers:
                self._stacks.starts_workers(facts)

    def _facts_of(self, iterator: Any) -> LoaderFacts | None:
        # the same, for an iterator that was made before the recorder
        with contextlib.suppress(Exception):
            facts = self._facts.get(iterator)
            if facts is None:
                facts = self._facts[iterator] = describe_iterator(iterator)
            return facts
        return None

    # -- a pass ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Time ``__next__`` and ``__iter__``; in the loud pass also look at what passes by."""
        self._step.clear()
        for part in ("loaders", "batches"):
            self.context.writer.touch(part)
        for facts in set(self._facts.values()):
            self._workers_queued_us(facts)  # from now on
        loud = self.context.pass_name == "loud"
        self._patch_next(self._look if loud else None)
        self._patch_iter()
        if has_shutdown:
            self._patch_shutdown()
        if loud:
            self._stacks.start()
            for fetcher in FETCHERS:
                self._patch_fetch(fetcher)

    def stop(self) -> None:
        super().stop()
        self._queue.close()
        self._stacks.stop(self._number)

    def step_end(self) -> None:
        """Write the step's rows, and describe loaders that were seen for the first time."""
        for facts, waited in self._step.items():
            row = BatchRow(loader=self._number(facts), n=waited.n, wait_us=waited.us)
            row.made, row.start_us = waited.made, waited.start_us
            if self.context.pass_name == "loud":
                row.devices, row.bytes = dict(waited.devices), waited.bytes
                row.in_order = 0 if facts.sorted_classes is None else waited.in_order
                row.texts = waited.texts or None
                row.sample_devices, row.default_device = (
                    sorted(waited.sample_devices),
                    default_device().type,
                )
            else:
                row.queued_us = self._workers_queued_us(facts)
            self.context.add(row)
        self._step.clear()

    def _workers_queued_us(self, facts: LoaderFacts) -> float | None:
        """The longest that one of its workers waited for a processor since this was asked last."""
        if not facts.workers or self.context.device.shadow:
            return None  # a rehearsal has no times
        with contextlib.suppress(Exception):  # an iterator may be taken down meanwhile
            iterators = [each for each, its in self._facts.items() if its == facts]
            processes = [each for iterator in iterators for each in worker_processes(iterator)]
            return self._workers.longest_us(each.pid for each in reversed(processes) if each.pid)
        return None

    def _number(self, facts: LoaderFacts) -> int:
        number = self._numbers.get(facts)
        if number is None:
            number = self._numbers[facts] = len(self._numbers)
            self.context.writer.add(self._row(number, facts))
        return number

    def _row(self, number: int, facts: LoaderFacts) -> LoaderRow:
        """The loader's facts, without the place of a dataset or collate function of a library."""
        row = facts.row(number, self._consumed_at.get(facts))
        row.iter_at = self._iterated_at.get(facts)
        if row.dataset_file and not self.context.frames.is_user(row.dataset_file):
            row.dataset_file = row.dataset_line = None
        if row.collate_file and not self.context.frames.is_user(row.collate_file):
            row.collate_file = row.collate_line = None
        return row

    # -- hooks -------------------------------------------------------------------------------------

    def _counts(self) -> bool:
        return self.in_step and not self._inside

    def _patch_next(self, look: Callable[[LoaderFacts, _Waited, Any], None] | None) -> None:
        original = LoaderIterator.__next__

        @functools.wraps(original)
        def timed_next(iterator: Any) -> Any:
            facts = self._facts_of(iterator) if self._counts() else None
            if facts is None:
                return original(iterator)
            if facts not in self._consumed_at:
                self._consumed_at[facts] = self.context.frames.here()
            waited = self._step.get(facts) or self._step.setdefault(facts, _Waited())
            self._inside = True
            self._sample_devices.clear()
            sampler, first = self._stacks.sampler, iterator in self._started
            if sampler is not None:
                sampler.begin(facts)
            start = self._queue.mark()
            try:
                batch = original(iterator)
                waited.n += 1
            finally:  # the end of an epoch is waited for, too
                us = self._queue.uncollected_us(start)
                if sampler is not None:
                    sampler.end()
                waited.us += us
                if first:
                    self._started.discard(iterator)
                    waited.start_us += us
                self._inside = False
            if look is not None:
                look(facts, waited, batch)
            return batch

        self._patches.attribute(LoaderIterator, "__next__", timed_next)

    def _patch_iter(self) -> None:
        original = DataLoader.__iter__

        @functools.wraps(original)
        def timed_iter(loader: Any) -> Any:
            self._stacks.rest()
            if not self._counts():
                return original(loader)
            self._inside = True
            start = self._queue.mark()
            try:
                iterator = original(loader)
            finally:
                self._inside = False
            waited_us = self._queue.uncollected_us(start)
            facts = self._facts_of(iterator) if isinstance(iterator, LoaderIterator) else None
            if facts is not None:
                if facts not in self._iterated_at:
                    self._iterated_at[facts] = self.context.frames.here()
                waited = self._step.setdefault(facts, _Waited())
                waited.us += waited_us
                waited.made += 1
                waited.start_us += waited_us
                self._started.add(iterator)
            return iterator

        self._patches.attribute(DataLoader, "__iter__", timed_iter)

    def _patch_shutdown(self) -> None:
        """An iterator that is dropped ends its workers, and the step waits for them."""
        original = vars(WORKER_ITERATOR)[SHUTDOWN]

        @functools.wraps(original)
        def timed_shutdown(iterator: Any) -> Any:
            inside, here = self._inside, threading.get_ident() == self._thread
            facts = self._facts.get(iterator) if self.context.in_step and here else None
            if facts is None or (inside and facts not in self._step):
                return original(iterator)
            start = self._queue.mark()
            try:
                return original(iterator)
            finally:
                us = self._queue.uncollected_us(start)
                waited = self._step.setdefault(facts, _Waited())
                waited.us += 0.0 if inside else us
                waited.start_us += us

        self._patches.attribute(WORKER_ITERATOR, SHUTDOWN, timed_shutdown)

    def _look(self, facts: LoaderFacts, waited: _Waited, batch: Any) -> None:
        with contextlib.suppress(Exception):  # a batch can be any object of the user's
            for tensor in tensors_in(batch, TENSORS_SEEN):
                waited.devices[tensor.device.type] += 1
                waited.bytes += tensor.nbytes
                if self.context.device.accelerator:
                    mark_batch(tensor, self._number(facts))
            if torch.is_grad_enabled():
                waited.in_order += facts.sorted_classes is not None and is_in_order(batch)
                texts = lengths_in(batch)
                waited.texts += [] if texts is None else [texts]
        waited.sample_devices |= self._sample_devices

    def _look_at_samples(self, samples: Any) -> None:
        with contextlib.suppress(Exception):
            some = samples[:SAMPLES_SEEN] if isinstance(samples, list) else samples
            devices = {tensor.device.type for tensor in tensors_in(some, SAMPLE_TENSORS_SEEN)}
            # numbers and arrays lie in the host's memory
            self._sample_devices.update(devices or {"cpu"})

    def _patch_fetch(self, fetcher_class: type) -> None:
        original = fetcher_class.fetch  # type: ignore[attr-defined]

        @functools.wraps(original)
        def watched_fetch(fetcher: Any, index: Any) -> Any:
            # A dataset's own loader is not looked into. Worker processes that were forked inherit
            # this patch, unread.
            theirs = not self._inside or self._fetching or threading.get_ident() != self._thread
            if theirs or get_worker_info() is not None:
                return original(fetcher, index)
            collate = fetcher.collate_fn

            def looking_collate(samples: Any) -> Any:
                fetcher.collate_fn = collate
                self._look_at_samples(samples)
                return collate(samples)

            fetcher.collate_fn = looking_collate
            self._fetching = True
            try:
                return original(fetcher, index)
            finally:
                self._fetching = False
                fetcher.collate_fn = collate

        self._patches.attribute(fetcher_class, "fetch", watched_fetch)
