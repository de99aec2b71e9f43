"""``auditor.watch(every=...)``: one long run, from the first step that is seen to the last."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import os
import shutil
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from auditor.capture.instruments.monkeypatch import Patches
from auditor.errors import AuditProblem, fault
from auditor.extensions.longrun import trackers
from auditor.extensions.longrun.judging import Judge, Look

if TYPE_CHECKING:
    from typing import Self

    from auditor.capture.target.script_steps import StepFinder
    from auditor.runs.plan import Plan
import re
from datetime import datetime

from auditor.cli.out_folder import locked, numbered

LOOKS = "looks"
_FOLDER = re.compile(r"\d{8}-\d{6}-step\d+(-\d+)?")

ROOM = 1 << 30
"""Bytes that must be free on the disk for a look."""


class Folder:
    """``keep`` looks stay in ``path``."""

    def __init__(self, path: Path, keep: int) -> None:
        self.path = path
        self._keep = keep
        self._lock: int | None = None

    def open(self) -> None:
        """Make the folder, and be its only writer. Raises :class:`AuditProblem`."""
        try:
            (self.path / LOOKS).mkdir(parents=True, exist_ok=True)
            flags = os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0)
            self._lock = os.open(self.path / ".watch.lock", flags, 0o600)
        except OSError as error:
            raise AuditProblem(
                f"{self.path} cannot be written: {error.strerror}", "choose another out="
            ) from None
        if not locked(self._lock):
            self.close()
            raise AuditProblem(
                f"another process is watching into {self.path}", "choose another out="
            )

    def close(self) -> None:
        """Let others write here. May be called twice."""
        lock, self._lock = self._lock, None
        if lock is not None:
            with suppress(OSError):
                os.close(lock)

    def fresh(self, step: int) -> Path:
        """A folder for a look. Raises :class:`AuditProblem` if the disk is nearly full."""
        if shutil.disk_usage(self.path).free < ROOM:
            raise AuditProblem(f"the disk of {self.path} has less than 1 GiB left")
        found = numbered(self.path / LOOKS / f"{datetime.now():%Y%m%d-%H%M%S}-step{step}")
        found.mkdir(parents=True)
        return found

    def prune(self) -> None:
        """Remove all looks but the last ones; nothing that is not ours."""
        with suppress(OSError):
            ours = sorted(
                each
                for each in (self.path / LOOKS).iterdir()
                if _FOLDER.fullmatch(each.name) and each.is_dir() and not each.is_symlink()
            )
            for each in ours[: max(0, len(ours) - self._keep)]:
                shutil.rmtree(each, ignore_errors=True)


LOG = logging.getLogger("auditor")

POLL_S = 1.0
"""How often it is looked whether the judge has a report."""

LAST_JUDGE_S = 30.0
"""How long the end of the block waits for the report of a look that has just ended."""

TIMED = 100
"""Steps whose median is the time that one takes without instruments."""

KEYS = 10_000
"""Findings that are remembered as known."""

DOUBLED = 2.0
"""A known finding is told again when its price has grown by this factor."""


@dataclass(frozen=True)
class Settings:
    """What :func:`auditor.watch` was given. ``plan`` is that of each look, ``codes`` are the rules
    that were chosen and left out, ``said`` goes into each report. ``budget`` is the share of the
    run's time that looks may add: after one that took ``s`` seconds more than its steps would have,
    there is none until the run has lasted ``s / budget``.
    """

    every: int
    out: Path
    plan: Plan
    file: str
    codes: tuple[tuple[str, ...], tuple[str, ...]]
    keep: int
    budget: float
    log_to: Any = None
    said: tuple[str, ...] = ()


class LongRun:
    """A training loop that is watched as it runs: each look leaves a report in ``looks/`` of its
    folder, and the logger ``auditor`` tells what is new in it.

    A context manager; or :meth:`start` before the loop and :meth:`close` after it.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = perf_counter) -> None:
        self._settings = settings
        self._clock = clock
        self._sink = trackers.sink(settings.log_to)
        self._folder = Folder(settings.out, settings.keep)
        self._finder: StepFinder | None = None
        self._look: Look | None = None
        self._later = NextBackward(self._may_act, self._given_up)
        self._judge: Judge | None = None
        self._prices: dict[str, tuple[float, float]] = {}
        self._faults: set[str] = set()
        self._ends: deque[float] = deque(maxlen=TIMED)
        self._pid = self._thread = self._next = 0
        self._open = self._broken = False
        self._began = self._allowed = self._added = self._polled = 0.0
        self.steps = 0
        """Steps that have ended."""
        self.report: Path | None = None
        """The page of the last look that was judged."""

    # -- from the program --------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(error)

    def start(self) -> None:
        """Watch from now on. Where that cannot be (the folder cannot be written, or another process
        watches into it), a warning says so and training goes on; in a process that ``audit run``
        records nothing is watched.
        """
        from auditor.capture import child
        from auditor.capture.target.script_steps import StepFinder

        if self._open or child.RECORDS:
            return
        try:
            self._folder.open()
        except AuditProblem as problem:
            LOG.warning("not watched: %s", problem)
            return
        self._pid, self._thread, self._open = os.getpid(), 0, True
        self._began = self._allowed = self._polled = self._clock()
        self._added, self._next = 0.0, self.steps + self._settings.every
        self._ends.clear()
        atexit.register(self.close)
        self._finder = StepFinder(self._on_step)
        self._finder.install()

    def close(self, error: BaseException | None = None) -> None:
        """The run is over, or raised ``error``. May be called twice; never raises."""
        if not self._open or os.getpid() != self._pid:
            return
        self._open = False
        atexit.unregister(self.close)
        for each in (self._end_finder, lambda: self._end(error)):
            try:
                each()
            except Exception as problem:
                self._missed("end", problem)
        self._folder.close()

    def _end_finder(self) -> None:
        finder, self._finder = self._finder, None
        if finder is not None:
            finder.uninstall()

    def _end(self, error: BaseException | None) -> None:
        self._later.cancel()
        if self._look is not None:
            self._leave(error)
        if self._judge is not None and error is None:
            self._judge.wait(LAST_JUDGE_S)
            self._settle(self._clock())
        if self._judge is not None:
            LOG.warning("the report of the last look follows in %s", self._judge.folder)
        self._folder.prune()

    # -- at each step ------------------------------------------------------------------------------

    def _on_step(self) -> None:
        """A step has ended. A fault of ours ends the watch, and never the program."""
        if self._broken or not self._open or os.getpid() != self._pid:
            return  # in a copy of the process, too
        try:
            self._stepped()
        except Exception as error:
            self._given_up(error)

    def _may_act(self) -> bool:
        own = self._open and os.getpid() == self._pid
        return own and threading.get_ident() == self._thread

    def _given_up(self, error: Exception) -> None:
        """A fault of ours: this run is watched no more, and its look is over as soon as may be."""
        self._broken = True
        self._missed("watch", error)
        if self._look is not None:
            with suppress(Exception):
                self._later.do(lambda: self._leave(None))

    def _stepped(self) -> None:
        thread = threading.get_ident()
        if thread != self._thread:
            if self._thread:
                return  # the steps of another loop
            self._thread = thread
        self.steps += 1
        if self._look is not None:
            self._look.step()
            if self._look.over and not self._later:
                self._later.do(lambda: self._leave(None))
            return
        now = self._clock()
        self._ends.append(now)
        if self._judge is not None:
            if now - self._polled >= POLL_S:
                self._polled = now
                self._settle(now)
            return
        due = self.steps >= self._next and now >= self._allowed
        if due and not self._later and not _profiles():
            self._later.do(self._begin)

    # -- looks -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._next = self.steps + self._settings.every
        typical_s = median([after - before for before, after in pairwise(self._ends)] or [0.0])
        self._ends.clear()
        folder: Path | None = None
        try:
            folder = self._folder.fresh(self.steps)
            look = Look(self._settings, folder, typical_s)
            look.begin(self._clock())
            self._look = look
        except (AuditProblem, OSError) as problem:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            self._warn(f"no look: {problem}")

    def _leave(self, error: BaseException | None) -> None:
        """The look's steps are over: everything is put back, and another process judges."""
        look, self._look = self._look, None
        if look is None:
            return
        plan = look.leave(error)
        now = self._clock()
        self._added += look.added(now)
        self._allowed = self._began + self._added / self._settings.budget
        if plan:
            self._judge = Judge(look.folder, plan, json.dumps(self._settings.codes), now)

    def _settle(self, now: float) -> None:
        """Has the judge a report?"""
        judge = self._judge
        said = judge.done(now) if judge is not None else None
        if said is None:
            return
        self._judge = None
        self._folder.prune()
        if "error" in said:
            self._warn(str(said["error"])[:500])
            return
        self.report = Path(said["report"])
        self._announce(said["findings"], said["report"])

    def _announce(self, findings: list[dict[str, Any]], report: str) -> None:
        """Each finding once, and once more when its price has doubled."""
        fresh = []
        for each in findings:
            key, price = each["key"], (each["us"] or 0.0, each["bytes"] or 0.0)
            known = self._prices.get(key)
            if known is None or any(
                0 < DOUBLED * before <= now for before, now in zip(known, price, strict=True)
            ):
                fresh.append(each)
                if known is not None or len(self._prices) < KEYS:
                    self._prices[key] = price
        if fresh:
            first = fresh[0]
            more = f", and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            said = f"{first['site']}: {first['code']}: {first['message']}{more}; {report}"
            LOG.warning("%s", said)
        try:
            self._sink({"watch/findings": float(len(findings))}, self.steps)
        except Exception as error:
            self._missed("log_to", error)

    # -- what is said ------------------------------------------------------------------------------

    def _warn(self, said: str) -> None:
        if said not in self._faults:
            self._faults.add(said)
            LOG.warning("step %s: %s", f"{self.steps:,}", said)

    def _missed(self, where: str, error: Exception) -> None:
        self._warn(f"watching ({where}) failed ({fault(error)})")


def _profiles() -> bool:
    """Whether the program's own profiler runs: a look would be in its results."""
    from auditor.capture.instruments.torch_private.autograd import profiler_is_on

    return profiler_is_on()


# -- next backward ---------------------------------------------------------------------------------
# The moment at which instruments are put on and taken off in a loop that we do not own.


class NextBackward:
    """Does one thing at a time, at a backward of which ``may`` says yes; ``failed`` hears what that
    raises, and the backward goes on.
    """

    def __init__(self, may: Callable[[], bool], failed: Callable[[Exception], None]) -> None:
        self._may = may
        self._failed = failed
        self._patches = Patches()
        self._ours: Callable[..., Any] | None = None
        self._waiting: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self._waiting is not None

    def do(self, work: Callable[[], None]) -> None:
        """Call ``work`` as the next backward begins."""
        import torch

        self.cancel()
        self._waiting = work
        if self._patches:
            return  # what another has put over ours still leads here
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            changed = self._now() and torch.autograd.backward is not backward
            return (torch.autograd.backward if changed else original)(*args, **kwargs)

        self._ours = backward
        self._patches.attribute(torch.autograd, "backward", backward)

    def _now(self) -> bool:
        work = self._waiting
        if work is None or not self._may():
            return False
        self.cancel()  # before the work, which may put functions of its own in the same place
        try:
            work()
        except Exception as error:
            self._failed(error)
        return True

    def cancel(self) -> None:
        """Forget what waits. May be called twice."""
        self._waiting = None
        if self._patches and sys.modules["torch"].autograd.backward is self._ours:
            self._patches.undo()
