"""Inside a worker process of a DataLoader: which lines its batches take their time in, as long as
the recording process asks for it.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.stack_sampler import Stack, StackSampler, line_of
from auditor.capture.instruments.torch_private.data import FETCHERS, worker_loop
from auditor.capture.instruments.user_frames import outwards
from auditor.capture.instruments.worker_memory import FetchedBefore, WorkerContainers

MAKERS = ("tensor", "as_tensor")

NESTED = 3
"""Lists inside lists that are looked into."""


@dataclass
class Listed:
    """What the calls of one place were given: arrays, and numbers in them."""

    n: int = 0
    us: float = 0.0
    arrays: int = 0
    numbers: int = 0


class ArrayLists:
    """Counts and times such calls by place; ``here`` names the caller's (None: not counted)."""

    def __init__(self, here: Callable[[], Hashable | None]) -> None:
        self._here = here
        self._seen: defaultdict[Hashable, Listed] = defaultdict(Listed)

    def watch(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Put functions of ours in place of torch's, by ``replace(torch, name, function)``.

        Torch collects its own once, when a default device is first asked for: before that.
        """
        with torch.device("cpu"):
            torch.empty(0)
        for name in MAKERS:
            replace(torch, name, self._timed(getattr(torch, name)))

    def taken(self) -> dict[Hashable, Listed]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, defaultdict(Listed)
        return dict(seen)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            arrays = arrays_in(args[0] if args else kwargs.get("data"))
            place = self._here() if arrays else None
            if place is None:
                return original(*args, **kwargs)
            start = time.thread_time_ns()
            made = original(*args, **kwargs)
            seen = self._seen[place]
            seen.n += 1
            seen.us += (time.thread_time_ns() - start) / 1e3
            seen.arrays += arrays
            seen.numbers += made.numel()
            return made

        return make


def arrays_in(data: Any) -> int:
    """How many arrays of at least one dimension the list holds; 0 of anything else."""
    lists = 1
    for _ in range(NESTED):
        if not isinstance(data, (list, tuple)) or not data:
            return 0
        lists *= len(data)
        data = data[0]
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(data, numpy.ndarray):
            return lists if data.ndim else 0
    return 0


READERS = {
    "numpy": ("load", "loadtxt", "genfromtxt", "fromfile"),
    "torch": ("load",),
    "pandas": ("read_csv", "read_parquet", "read_pickle", "read_json", "read_feather"),
    "json": ("load",),
    "pickle": ("load",),
}
"""Names of such functions, by module."""

PARTS = frozenset(
    {"mmap_mode", "mmap", "count", "offset", "nrows", "skiprows", "chunksize", "iterator",
     "usecols", "columns", "filters", "max_rows", "skip_header"}
)  # fmt: skip
"""Keywords with which no more than a part is read, or nothing yet."""

LAZY = frozenset({"NpzFile"})
"""Results that read later."""


@dataclass
class FilesRead:
    """What one place read in one batch: files by path, and time inside."""

    name: str
    us: float = 0.0
    files: Counter[str] = field(default_factory=Counter)

    @property
    def n(self) -> int:
        """Reads."""
        return self.files.total()

    @property
    def again(self) -> int:
        """Reads of a file that was read before."""
        return self.n - len(self.files)

    def row(self) -> dict[str, Any]:
        """What is written down of it."""
        size, path = self.largest
        counts = {"n": self.n, "again": self.again, "us": self.us, "batches": 1}
        return {"name": self.name, **counts, "bytes": size, "path": path}

    @property
    def largest(self) -> tuple[int, str]:
        """Size and path of the largest file that was read more than once."""
        return max(
            ((size_of(path), path) for path, often in self.files.items() if often > 1),
            default=(0, ""),
        )


class FileReads:
    """Counts and times such calls by place; ``here`` names the caller's (None: not counted)."""

    def __init__(self, here: Callable[[], Hashable | None]) -> None:
        self._here = here
        self._inside = False
        self._seen: dict[tuple[Hashable, str], FilesRead] = {}

    def watch(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Put ours in their place, by ``replace(module, name, function)``, in imported modules."""
        for module, names in READERS.items():
            for name in names:
                original = getattr(sys.modules.get(module), name, None)
                if callable(original):
                    replace(sys.modules[module], name, self._timed(original, f"{module}.{name}"))

    def taken(self) -> dict[Hashable, list[FilesRead]]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, {}
        by_place: defaultdict[Hashable, list[FilesRead]] = defaultdict(list)
        for (place, _), read in seen.items():
            by_place[place].append(read)
        return dict(by_place)

    def _timed(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def read(*args: Any, **kwargs: Any) -> Any:
            path = None if self._inside else _whole_file(args, kwargs)
            place = self._here() if path is not None else None
            if path is None or place is None:
                return original(*args, **kwargs)
            self._inside = True
            start = time.perf_counter_ns()
            try:
                result = original(*args, **kwargs)
            finally:
                self._inside = False
            if type(result).__name__ not in LAZY:
                seen = self._seen.setdefault((place, name), FilesRead(name))
                seen.files[path] += 1
                seen.us += (time.perf_counter_ns() - start) / 1e3
            return result

        return read


def _whole_file(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """The path of the file that is read as a whole; None of a part, or of what is no file."""
    if len(args) > 1 or any(kwargs.get(name) for name in PARTS):
        return None
    file: Any = args[0] if args else next(iter(kwargs.values()), None)
    with contextlib.suppress(Exception):  # the user's objects
        if isinstance(file, (str, bytes, os.PathLike)):
            return os.fsdecode(file)
        if file.tell() == 0 and isinstance(file.name, str):
            return str(file.name)
    return None


def size_of(path: str) -> int:
    """Bytes of a file; 0 where there is none."""
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


ASKED = "asked"
"""The file in the folder that is there while stacks are asked for."""

STACKS, LISTS, READS, DRAWS, GROWN, COPIED = "jsonl", "lists", "reads", "draws", "grown", "copied"
"""What the names of the files end in that workers write."""

AT_FIRST = 4
"""Batches of a worker of which it is watched how much shared memory they copy."""

DEEPEST = 16
"""Frames of a call that are written down."""

Frame = tuple[str, int, str]
"""File, line and function."""


@dataclass
class WatchedLoop:
    """In the place of torch's worker loop: what workers see goes to files of ``folder``."""

    folder: str
    loader: int = 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """In the worker process."""
        with contextlib.suppress(Exception):
            worker = _Worker(Path(self.folder), self.loader)
            for fetcher_class in FETCHERS:  # nothing is undone: the process ends with its loop
                fetcher_class.fetch = worker.watched(fetcher_class.fetch)
        worker_loop(*args, **kwargs)


class _Worker:
    """What one worker process sees of its fetches."""

    def __init__(self, folder: Path, loader: int) -> None:
        self._folder = folder
        self._loader = loader
        self._asked = str(folder / ASKED)
        self._sampler = StackSampler()
        self._inside = False
        self._fetched, self._counts = 0, False
        self._patches = Patches()
        self._lists = ArrayLists(_stack_here)
        self._reads = FileReads(_stack_here)
        self._containers: WorkerContainers | None = None
        self._before, self._again = FetchedBefore(), 0

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A fetch; a dataset's own loader is part of the outer one."""

        @functools.wraps(original)
        def watched_fetch(fetcher: Any, index: Any) -> Any:
            if self._inside:
                return original(fetcher, index)
            self._inside = True
            self._again = self._before.again(index)
            try:
                if self._fetched < AT_FIRST:
                    return self._at_first(original, fetcher, index)
                return self._looked_at(original, fetcher, index)
            finally:
                self._inside = False

        return watched_fetch

    def _at_first(self, original: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        """One of the first batches: does it draw what other workers draw, and copy what they share?"""
        self._fetched += 1
        first: FirstBatch | None = None
        with contextlib.suppress(Exception):  # the dataset is the user's
            if self._fetched == 1:
                first = FirstBatch(fetcher)
                told = self._folder.glob(f"{self._loader}-*.{COPIED}")
                if next(told, None) is None:  # once a loader: timed steps wait for it
                    self._containers, self._counts = WorkerContainers(fetcher), True
        fetch = functools.partial(self._looked_at, original, fetcher, index)
        containers = self._containers if self._counts else None
        result, copied = (fetch(), []) if containers is None else containers.copied(fetch)
        with contextlib.suppress(Exception):
            self._write(DRAWS, first.told() if first is not None else ())
            self._write(COPIED, copied if self._fetched > 1 else ())
        return result

    def _looked_at(self, original: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        if not os.path.exists(self._asked):
            return original(fetcher, index)
        with contextlib.suppress(Exception):  # the dataset is the user's
            self._containers = self._containers or WorkerContainers(fetcher)
            self._containers.begin()
        self._lists.watch(self._patches.attribute)
        self._reads.watch(self._patches.attribute)
        start = time.perf_counter_ns()
        self._sampler.begin(self._loader)
        try:
            return original(fetcher, index)
        finally:
            self._sampler.end()
            self._patches.undo()
            self._tell((time.perf_counter_ns() - start) / 1e3)
            with contextlib.suppress(Exception):
                if self._containers is not None:
                    self._write(GROWN, self._containers.grown(self._again))

    def _tell(self, fetch_us: float) -> None:
        looked = self._sampler.taken().items()
        rows = ({"us": us, "looks": n, "stack": frames_of(at)} for (_, at), (us, n) in looked)
        self._write(STACKS, rows)
        lists = [(stack, vars(listed)) for stack, listed in self._lists.taken().items()]
        taken = self._reads.taken().items()
        reads = [(stack, read.row()) for stack, whole in taken for read in whole]
        for kind, calls in ((LISTS, lists), (READS, reads)):
            self._write(kind, ({"stack": at, "fetch_us": fetch_us, **row} for at, row in calls))

    def _write(self, kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(row) + "\n" for row in rows]
        path = self._folder / f"{self._loader}-{os.getpid()}.{kind}"
        if lines:
            with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
                file.write("".join(lines))


def _stack_here() -> tuple[Frame, ...]:
    """The frames around the caller of a function of ours, innermost first."""
    around = itertools.islice(outwards(sys._getframe(2)), DEEPEST)
    return tuple(
        (each.f_code.co_filename, line_of(each), each.f_code.co_qualname) for each in around
    )


def frames_of(stack: Stack) -> list[Frame]:
    """A stack as it can be written down."""
    return [(code.co_filename, line, code.co_qualname) for code, line in stack]


def told(folder: Path) -> Iterator[tuple[int, float, int, list[Frame]]]:
    """What workers wrote of their stacks, which is removed: loader, us, looks, stack."""
    for loader, row in told_of(folder, STACKS):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            yield loader, float(row["us"]), int(row["looks"]), stack_of(row)


def told_of(folder: Path, kind: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """What workers have written of one kind, and remove it: loader and row."""
    for path in sorted(folder.glob(f"*.{kind}")):
        with contextlib.suppress(OSError, ValueError):
            content = path.read_text(encoding="utf-8")
            path.unlink()
            loader = int(path.name.partition("-")[0])
            for line in content.split("\n"):
                with contextlib.suppress(ValueError):  # cut off by the worker's end
                    row = json.loads(line)
                    if isinstance(row, dict):
                        yield loader, row


def stack_of(row: Mapping[str, Any]) -> list[Frame]:
    """The stack that a row holds."""
    return [(str(file), int(at), str(name)) for file, at, name in row["stack"]]


# -- worker generators -----------------------------------------------------------------------------
# Random generators that a dataset brings into the worker processes of its loader: do two workers
# draw the same numbers?


VISITS = 500
"""Objects that are looked at: a dataset may hold all samples in a list."""

ITEMS = 32
"""Items of a container that are looked at."""

Told = dict[str, Any]
"""Of a generator: ``worker``, ``name``, ``kind``, its owner's class, states around a batch."""


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
                place = {"owner": owner.__qualname__, "module": owner.__module__}
                states = {"before": before, "after": after}
                yield {"worker": self._worker, "name": name, "kind": kind, **place, **states}


def generators_of(dataset: Any, collate: Any) -> Iterator[tuple[str, Any, type]]:
    """Generators of dataset and collate function, by what leads to them, with their holder."""
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
    """What a function reaches: its object, its closure, and global generators of its module."""
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
    """Equal for generators that will draw the same numbers, in any process."""
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
