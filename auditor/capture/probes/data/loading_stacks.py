"""Which lines of the user's the loading takes its time in: stacks of the step's own thread inside
the loader, and of the worker processes.
"""

from __future__ import annotations

import contextlib
import linecache
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from auditor.capture.instruments.array_lists import ArrayLists
from auditor.capture.instruments.file_reads import FileReads
from auditor.capture.instruments.loader_workers import (
    ASKED,
    DRAWS,
    FETCHES,
    LISTS,
    READS,
    Frame,
    WatchedLoop,
    frames_of,
    stack_of,
    told,
    told_of,
)
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.stack_sampler import StackSampler
from auditor.capture.instruments.torch_private.data import NEXT_INDEX, WORKER_LOOP, WORKER_MODULE
from auditor.capture.instruments.user_frames import LOADER
from auditor.capture.probes.base import Context
from auditor.recordings.schema.data import DrawsRow, FetchedRow, ListedRow, LoadingRow, RereadRow

DEEPEST = 16
"""User frames of a stack that are written down, from the loader's on."""

_Key = tuple[Any, str, str, tuple[int, ...], str]


class LoadingStacks:
    """Writes ``loading``, ``fetched``, ``draws``, ``listed`` and ``reread``. Workers are met when they are started, and asked when the diagnostic
    pass begins: they may live longer than a pass.
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
        """Look from now on."""
        for row in (LoadingRow, FetchedRow, DrawsRow, ListedRow, RereadRow):
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
        self._write_fetches(number)
        self._write_lists(number)
        self._write_reads(number)
        self._write_draws(number)

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
        """Begins and ends a wait of the step's thread; None where nobody looks."""
        return self._sampler if self._on else None

    # -- rows --------------------------------------------------------------------------------------

    def _write(self, number: Callable[[Any], int]) -> None:
        seen: defaultdict[_Key, list[float]] = defaultdict(lambda: [0.0, 0.0])

        def add(owner: Any, where: str, frames: list[Frame], us: float, looks: int) -> None:
            total = seen[(owner, where, phase_of(frames), *self._users(frames))]
            total[0] += us
            total[1] += looks

        for (owner, stack), (us, looks) in self._sampler.taken().items():
            add(owner, "step", frames_of(stack), us, looks)
        for loader, us, looks, frames in () if self._folder is None else told(self._folder):
            if loader < len(self._starting):
                add(self._starting[loader], "worker", frames, us, looks)
        for (owner, where, phase, sites, via), (total_us, often) in seen.items():
            self._context.add(
                LoadingRow(
                    loader=number(owner),
                    where=where,
                    phase=phase,
                    stack=list(sites),
                    via=via or None,
                    us=total_us,
                    n=int(often),
                )
            )

    def _write_fetches(self, number: Callable[[Any], int]) -> None:
        rows: dict[int, FetchedRow] = {}
        for owner, seen in self._of_workers(FETCHES):
            with contextlib.suppress(KeyError, TypeError):
                its = number(owner)
                row = rows.setdefault(its, FetchedRow(loader=its))
                us, cpu_us, samples = seen["us"], seen["cpu_us"], seen["samples"]
                row.us, row.cpu_us = row.us + us, row.cpu_us + cpu_us
                row.n, row.samples = row.n + 1, row.samples + samples
        for row in rows.values():
            self._context.add(row)

    def _write_lists(self, number: Callable[[Any], int]) -> None:
        for at, seen in self._lists.taken().items():
            self._context.add(ListedRow(at=cast("int", at), where="step", **vars(seen)))
        rows: dict[tuple[int, int], ListedRow] = {}
        for owner, seen_there in self._of_workers(LISTS):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                sites, _ = self._users(stack_of(seen_there))
                for at in sites[-1:]:
                    new = ListedRow(at=at, where="worker", loader=number(owner))
                    row = rows.setdefault((at, number(owner)), new)
                    row.n += seen_there["n"]
                    row.us += seen_there["us"]
                    row.arrays += seen_there["arrays"]
                    row.numbers += seen_there["numbers"]
                    row.fetch_us += seen_there["fetch_us"]
        for row in rows.values():
            self._context.add(row)

    def _write_reads(self, number: Callable[[Any], int]) -> None:
        rows: dict[tuple[int, str, int | None], RereadRow] = {}

        def add(at: int, loader: int | None, seen: Mapping[str, Any]) -> None:
            where = "step" if loader is None else "worker"
            new = RereadRow(at=at, where=where, name=seen["name"], loader=loader)
            _add_read(rows.setdefault((at, seen["name"], loader), new), seen)

        for place, reads in self._reads.taken().items():
            for read in reads:
                add(cast("tuple[int, int]", place)[0], None, read.row())
        for owner, seen_there in self._of_workers(READS):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                sites, _ = self._users(stack_of(seen_there))
                for at in sites[-1:]:
                    add(at, number(owner), seen_there)
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

    def _users(self, frames: list[Frame]) -> tuple[tuple[int, ...], str]:
        """Sites of the user's frames, outermost first, and the library's function that the
        innermost of them calls. Wrappers of ours stand for what they call.
        """
        frames = [each for each in frames if not self._context.frames.is_own(each[0])]
        mine = [at for at, frame in enumerate(frames) if self._context.frames.is_user(frame[0])]
        if not mine:
            return (), _library(frames[0]) if frames else ""
        sites = tuple(self._context.frames.site(*frames[at]) for at in reversed(mine))[:DEEPEST]
        inner = mine[0] - 1
        return sites, _library(frames[inner]) if inner >= 0 else ""


def _add_read(row: RereadRow, seen: Mapping[str, Any]) -> None:
    row.n += seen["n"]
    row.again += seen["again"]
    row.us += seen["us"]
    row.batches += seen["batches"]
    row.fetch_us += seen.get("fetch_us", 0.0)
    if seen["bytes"] > row.bytes:
        row.bytes, row.path = seen["bytes"], seen["path"]


def _library(frame: Frame) -> str:
    file, _, name = frame
    return f"{'/'.join(file.replace(chr(92), '/').split('/')[-2:])}:{name}"


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
