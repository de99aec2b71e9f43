"""``auditor.watch(every=...)``: one long run, from the first step that is seen to the last."""

from __future__ import annotations

import atexit
import functools
import json
import logging
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from auditor.capture.instruments.monkeypatch import Patches
from auditor.errors import AuditProblem, fault
from auditor.extensions.longrun import trackers
from auditor.extensions.longrun.journal import Journal
from auditor.extensions.longrun.look import Look
from auditor.extensions.longrun.observer import Observer, Told
from auditor.extensions.longrun.requests import Door, taken
from auditor.extensions.longrun.rota import COOL_DOWN_S, Rota

if TYPE_CHECKING:
    from typing import Self

    from auditor.capture.target.script_steps import StepFinder
    from auditor.extensions.longrun.judging import Judge
    from auditor.runs.plan import Plan

LOG = logging.getLogger("auditor")

ASKED_S = 1.0
"""How often it is looked whether somebody asks for a look."""

PULSE_S = 60.0
"""Between two lines of numbers in watch.jsonl, and two reports to a tracker."""

LAST_JUDGE_S = 30.0
"""How long the end of the block waits for the report of a look that has just ended."""

KEYS = 10_000
"""Findings that are remembered as known."""


@dataclass(frozen=True)
class Settings:
    """What :func:`auditor.watch` was given. ``plan`` is that of each look, ``codes`` are the rules
    that were chosen and left out, ``said`` goes into each report.
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
    """A training loop that is watched as it runs; what it finds is in ``watch.jsonl`` and
    ``looks/`` of its folder, and told by the logger ``auditor``.

    A context manager; or :meth:`start` before the loop and :meth:`close` after it.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float] = perf_counter) -> None:
        self._settings = settings
        self._clock = clock
        self._sink = trackers.sink(settings.log_to)
        self._journal = Journal(settings.out, settings.keep)
        self._door = Door()
        self._observer = Observer()
        self._rota = Rota(settings.every, settings.budget, clock())
        self._finder: StepFinder | None = None
        self._look: Look | None = None
        self._later = NextBackward(self._may_act, self._given_up)
        self._judge: Judge | None = None
        self._answers = False
        self._known: set[str] = set()
        self._warned: dict[str, float] = {}
        self._pid = self._thread = 0
        self._open = self._broken = False
        self._asked_at = self._pulse_at = 0.0
        self._quiet_until, self._quiet_steps = 0.0, 0
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
            self._journal.open()
        except AuditProblem as problem:
            LOG.warning("not watched: %s", problem)
            return
        self._pid, self._thread, self._open = os.getpid(), 0, True
        unreachable = self._door.open({"out": str(self._settings.out.resolve())})
        self._observer, self._quiet_until = Observer(), 0.0
        now = self._asked_at = self._pulse_at = self._clock()
        self._rota = Rota(self._settings.every, self._settings.budget, now)
        self._journal.add("started", 0, pid=self._pid, unreachable=unreachable)
        atexit.register(self.close)
        self._finder = StepFinder(self._on_step)
        self._finder.install()

    def log(self, **values: float) -> None:
        """Numbers that the program has read anyway. ``loss`` is watched; all go to ``log_to``. A
        tensor is not read: that would make the host wait for the device.
        """
        if not self._mine:
            return
        try:
            numbers = {name: float(each) for name, each in values.items() if _is_number(each)}
            if len(numbers) < len(values):
                self._warn("log", "w.log takes numbers, as in w.log(loss=loss.item()): not tensors")
            if "loss" in numbers:
                self._take(self._observer.logged(numbers["loss"]))
            if numbers:
                self._sink(numbers, self.steps)
        except Exception as error:
            self._missed("log", error)

    def look(self) -> None:
        """Look at the next steps."""
        self._rota.ask()
        self._quiet_until = 0.0

    def close(self, error: BaseException | None = None) -> None:
        """The run is over, or raised ``error``. May be called twice; never raises."""
        if not self._open or os.getpid() != self._pid:
            return
        self._open = False
        atexit.unregister(self.close)
        for each in (self._end_finder, lambda: self._end(error), self._door.close):
            try:
                each()
            except Exception as problem:
                self._missed("end", problem)
        self._journal.close()

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
            self._journal.add("not judged yet", self.steps, report=str(self._judge.folder))
        self._journal.prune()
        self._pulse()
        added = round(self._rota.added, 2)
        held = self._rota.held_back
        self._journal.add("ended", self.steps, looks_added_s=added, looks_held_back=held)

    # -- at each step ------------------------------------------------------------------------------

    @property
    def _mine(self) -> bool:
        """Whether it is this process that is watched, and no copy of it."""
        return self._open and not self._broken and os.getpid() == self._pid

    def _on_step(self) -> None:
        """A step has ended: of nearly all of them only the time is kept, since each step pays for
        this. A fault of ours ends the watch, and never the program.
        """
        now = self._clock()
        quiet = now < self._quiet_until and self.steps < self._quiet_steps
        if quiet and threading.get_ident() == self._thread:
            self.steps += 1
            self._observer.beats.note(now)
            return
        if not self._mine:
            return
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
        self._quiet_until = 0.0
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
        if self._observer.step(now):
            self._beat(now)
        why = self._rota.due(self.steps, now)
        if why and self._judge is None and not self._later and not _profiles():
            self._later.do(lambda: self._begin(why))
        idle = not (why or self._later or self._rota.asked)
        self._quiet_until = self._observer.beats.ends if idle else 0.0
        self._quiet_steps = self._rota.next_step - 1

    def _beat(self, now: float) -> None:
        for each in self._observer.beat(now):
            self._take(each)
        if now - self._asked_at >= ASKED_S:
            self._asked_at = now
            self._hear()
            self._settle(now)
        if now - self._pulse_at >= PULSE_S:
            self._pulse_at = now
            self._pulse()

    def _hear(self) -> None:
        """Does somebody ask for a look?"""
        by_attach = self._door.asked()
        if taken(self._settings.out / "look") or by_attach:
            self._answers = self._answers or by_attach
            self._rota.ask()

    def _take(self, told: Told | None) -> None:
        """The run has departed from its course."""
        if told is None:
            return
        looks = self._rota.depart(told.kind, told.what, self._clock())
        self._quiet_until = 0.0
        self._journal.add(told.kind, self.steps, what=told.what, looks=looks, **told.facts)
        self._warn(told.kind, f"step {self.steps:,}: {told.what}")

    def _pulse(self) -> None:
        facts = self._observer.facts()
        self._journal.add("pulse", self.steps, **facts)
        numbers = {f"watch/{name}": float(each) for name, each in facts.items() if each is not None}
        try:
            self._sink(numbers, self.steps)
        except Exception as error:
            self._missed("log_to", error)

    # -- looks -------------------------------------------------------------------------------------

    def _begin(self, why: str) -> None:
        asked, now = self._rota.asked, self._clock()
        self._quiet_until = 0.0
        self._rota.begun(self.steps, now)
        folder: Path | None = None
        try:
            folder = self._journal.fresh(self.steps)
            look = Look(self._settings, folder, why, self._observer.typical_s)
            look.begin(now)
            self._look = look
        except (AuditProblem, OSError) as problem:
            if folder is not None:
                shutil.rmtree(folder, ignore_errors=True)
            self._journal.add("not looked", self.steps, why=why, problem=str(problem))
            self._reply(problem=str(problem))
            if asked:
                self._warn("not looked", f"step {self.steps:,}: no look ({problem})")
            self._observer.resumed(self._clock())

    def _leave(self, error: BaseException | None) -> None:
        """The look's steps are over: everything is put back, and another process judges."""
        look, self._look = self._look, None
        self._quiet_until = 0.0
        if look is None:
            return
        try:
            plan = look.leave(error)
            now = self._clock()
            added = look.added(now)
            self._rota.ended(added)
            row = {"why": look.why, "steps": look.steps, "added_s": round(added, 3)}
            self._journal.add("look", self.steps, **row, folder=str(look.folder))
            if plan:
                self._judge = look.judged(plan, json.dumps(self._settings.codes), now)
            else:
                self._reply(problem="no step was seen")
        finally:
            self._observer.resumed(self._clock())

    def _settle(self, now: float) -> None:
        """Has the judge a report?"""
        judge = self._judge
        said = judge.done(now) if judge is not None else None
        if judge is None or said is None:
            return
        self._judge = None
        self._journal.prune()
        if "error" in said:
            self._journal.add("not judged", self.steps, problem=str(said["error"])[:500])
            self._reply(problem=said["error"])
            return
        self.report = Path(said["report"])
        self._told(said["findings"], said["report"])
        self._reply(report=said["report"], findings=len(said["findings"]))

    def _told(self, findings: list[dict[str, Any]], report: str) -> None:
        fresh = [each for each in findings if each["key"] not in self._known]
        if len(self._known) < KEYS:
            self._known.update(each["key"] for each in fresh)
        codes = sorted({each["code"] for each in fresh})
        self._journal.add(
            "findings", self.steps, report=report, all=len(findings), new=fresh, codes=codes
        )
        if fresh:
            first = fresh[0]
            more = f", and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            said = f"{first['site']}: {first['code']}: {first['message']}{more}; {report}"
            LOG.warning("%s", said)
        with suppress(Exception):
            self._sink({"watch/findings": float(len(findings))}, self.steps)

    def _reply(self, **said: Any) -> None:
        if self._answers and not self._rota.asked:
            self._answers = False
            self._door.answer(**said)

    # -- what is said ------------------------------------------------------------------------------

    def _warn(self, kind: str, said: str) -> None:
        """One line, and of each kind one in :data:`COOL_DOWN_S`."""
        now = self._clock()
        if now - self._warned.get(kind, -math.inf) >= COOL_DOWN_S:
            self._warned[kind] = now
            LOG.warning("%s", said)

    def _missed(self, where: str, error: Exception) -> None:
        """A fault of ours: told once for each place, and nothing else of it."""
        with suppress(Exception):
            self._journal.add("fault", self.steps, where=where, problem=fault(error))
            self._warn(f"fault {where}", f"watching ({where}) failed ({fault(error)})")


def _profiles() -> bool:
    """Whether the program's own profiler runs: a look would be in its results."""
    from auditor.capture.instruments.torch_private.autograd import profiler_is_on

    return profiler_is_on()


def _is_number(value: object) -> bool:
    """Whether it can be read without asking a device: a number of Python's or NumPy's."""
    module = type(value).__module__.partition(".")[0]
    return isinstance(value, (int, float)) or (module == "numpy" and hasattr(value, "__float__"))


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
        """Whether something waits."""
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
