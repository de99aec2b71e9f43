"""Inside a worker process of a DataLoader: which lines its batches take their time in, as long as
the recording process asks for it.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from auditor.capture.instruments.array_lists import ArrayLists
from auditor.capture.instruments.file_reads import FileReads
from auditor.capture.instruments.kept_open import KeptOpen
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.stack_sampler import Stack, StackSampler, line_of, queued_ns
from auditor.capture.instruments.torch_private.data import FETCHERS, worker_loop

ASKED = "asked"
"""The file in the folder that is there while stacks are asked for."""

STACKS, LISTS, READS, DRAWS, FETCHES = "jsonl", "lists", "reads", "draws", "fetches"
"""What the names of the files end in that workers write."""

DEEPEST = 16
"""Frames of a call that are written down."""

Frame = tuple[str, int, str]
"""File, line and function."""


@dataclass
class WatchedLoop:
    """Takes the place of torch's worker loop. What workers see goes to files of ``folder``,
    under the number of the loader that is starting them.
    """

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
        self._begun = False
        self._patches = Patches()
        self._lists = ArrayLists(_stack_here)
        self._reads = FileReads(_stack_here)

    def watched(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A fetch; a dataset's own loader is part of the outer one."""

        @functools.wraps(original)
        def watched_fetch(fetcher: Any, index: Any) -> Any:
            if self._inside:
                return original(fetcher, index)
            self._inside = True
            try:
                with self._first(fetcher):
                    return self._looked_at(original, fetcher, index)
            finally:
                self._inside = False

        return watched_fetch

    @contextlib.contextmanager
    def _first(self, fetcher: Any) -> Iterator[None]:
        if self._begun:
            yield
            return
        self._begun, first = True, None
        with contextlib.suppress(Exception):  # the dataset is the user's
            first = FirstBatch(fetcher)
        yield
        with contextlib.suppress(Exception):
            self._write(DRAWS, first.told() if first is not None else ())

    def _looked_at(self, original: Callable[..., Any], fetcher: Any, index: Any) -> Any:
        if not os.path.exists(self._asked):
            return original(fetcher, index)
        self._lists.watch(self._patches.attribute)
        self._reads.watch(self._patches.attribute)
        queue = KeptOpen(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        start, began = time.perf_counter_ns(), (time.thread_time_ns(), queued_ns(queue))
        self._sampler.begin(self._loader)
        try:
            return original(fetcher, index)
        finally:
            self._sampler.end()
            self._patches.undo()
            us = (time.perf_counter_ns() - start) / 1e3
            cpu_us = (time.thread_time_ns() - began[0]) / 1e3
            waited_us = min(us, max(0, queued_ns(queue) - began[1]) / 1e3)
            queue.close()
            samples = len(index) if isinstance(index, (list, tuple)) else 1
            row = {"samples": samples, "us": us - waited_us, "cpu_us": cpu_us}
            self._write(FETCHES, (row,))
            self._tell(us)

    def _tell(self, fetch_us: float) -> None:
        self._write(
            STACKS,
            (
                {"us": us, "looks": looks, "stack": frames_of(stack)}
                for (_, stack), (us, looks) in self._sampler.taken().items()
            ),
        )
        rows = [
            {"stack": stack, "fetch_us": fetch_us, **vars(listed)}
            for stack, listed in self._lists.taken().items()
        ]
        self._write(LISTS, rows)
        self._write(
            READS,
            (
                {"stack": stack, "fetch_us": fetch_us, **read.row()}
                for stack, reads in self._reads.taken().items()
                for read in reads
            ),
        )

    def _write(self, kind: str, rows: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps(row) + "\n" for row in rows]
        if lines:
            with (
                contextlib.suppress(OSError),
                open(
                    self._folder / f"{self._loader}-{os.getpid()}.{kind}", "a", encoding="utf-8"
                ) as file,
            ):
                file.write("".join(lines))


def _stack_here() -> tuple[Frame, ...]:
    """The frames around the one who called a function of ours, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    found: list[Frame] = []
    while frame is not None and len(found) < DEEPEST:
        code = frame.f_code
        found.append((code.co_filename, line_of(frame), code.co_qualname))
        frame = frame.f_back
    return tuple(found)


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
