"""Several processes of one target, each of which records its rank; started here as ``torchrun
--nproc-per-node N`` does, or by a launcher (:mod:`auditor.runs.launched_ranks`).
"""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from auditor.errors import TargetProblem
from auditor.recordings.folder import Recording, UnreadableRecording, read_manifest
from auditor.runs.child_process import IN_PLACE, MINIMUM_STEPS, Child
from auditor.runs.finalize import FOLLOWED, add_warning, clear, counted, seal, shortened
from auditor.runs.launchers import free_port
from auditor.runs.plan import RANK_FOLDER, Plan
from auditor.runs.progress import Progress, silent
from auditor.runs.project_copy import NoCopy, sheltered
from auditor.runs.rank_recordings import RankedRecording

ALONE_S = 15.0
"""How long other ranks may go on after one failed: they wait for it in a collective."""

BEHIND_S = 120.0
"""How long other ranks may go on after one completed: traces are written at the same time."""

Ended = str | int


class Ranks(Protocol):
    """Who runs the ranks: we, or a launcher."""

    def once(
        self, plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
    ) -> list[Recording]:
        """One run; one recording for each rank."""

    def shelter(self, plan: Plan) -> AbstractContextManager[Plan]:
        """The plan in a copy of the directory, as :func:`auditor.runs.project_copy.sheltered`."""


def record(
    plan: Plan,
    deadline: float | None,
    progress: Progress,
    echo: Callable[[str], None],
    ranks: Ranks | None = None,
) -> RankedRecording:
    """Run the plan in ``plan.world_size`` processes, until ``deadline`` (``time.monotonic``); the
    recordings of all ranks. ``ranks`` None: on this machine, started here.

    A target that ends before all passes were run is run once more with passes that fit. Raises
    :class:`TargetProblem` when the target cannot be run at all; never raises for what the target
    does.
    """
    ranks = ranks or LocalRanks()
    recordings = ranks.once(plan, deadline, progress, echo)
    if any(each.manifest.get("exhausted") for each in recordings):
        total = min(sum(counted(each.folder).values()) for each in recordings)
        if total < MINIMUM_STEPS:
            raise TargetProblem(
                f"{plan.target} ended after {total} steps; an audit needs at least {MINIMUM_STEPS}",
                "give it more data or more iterations",
            )
        for each in recordings:
            clear(each.folder)
        fitted = plan.fitted(total)
        try:
            with ranks.shelter(fitted) as apart:
                recordings = ranks.once(apart, deadline, progress, echo)
        except NoCopy as why:
            recordings = ranks.once(fitted, deadline, progress, echo)
            for each in recordings:
                add_warning(each, f"{IN_PLACE}: {why.message}")
        for each in recordings:
            add_warning(each, shortened(each, total))

    return RankedRecording(Path(plan.folder))


class LocalRanks:
    """Processes of this machine, all of them ours."""

    shelter = staticmethod(sheltered)

    def once(
        self, plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
    ) -> list[Recording]:
        """Start them, wait for all, and complete their recordings."""
        port = free_port()
        plans = [
            replace(plan, folder=f"{plan.folder}/{RANK_FOLDER}{rank}", rank=rank, rendezvous=port)
            for rank in range(plan.world_size)
        ]
        children: list[Child] = []
        try:
            children.extend(
                Child(each, progress if each.rank == 0 else silent, prefixed(echo, each.rank or 0))
                for each in plans
            )
            ended = _wait(children, plans, deadline)
        finally:
            for child in children:
                child.leave()
        return [
            seal(each, how, child) for each, how, child in zip(plans, ended, children, strict=True)
        ]


def _wait(children: list[Child], plans: list[Plan], deadline: float | None) -> list[Ended]:
    """Exit codes, or ``timeout``, ``interrupted``, :data:`FOLLOWED` (another rank had failed)."""
    last: float | None = None
    try:
        while True:
            codes = [child.poll() for child in children]
            if None not in codes:
                return [code for code in codes if code is not None]
            now = time.monotonic()
            if deadline is not None and now >= deadline:
                return _stop(children, "timeout")
            if last is None and any(code is not None for code in codes):
                failed = [
                    plan
                    for plan, code in zip(plans, codes, strict=True)
                    if code is not None and not _completed(plan)
                ]
                last = now + (ALONE_S if failed else BEHIND_S)
            if last is not None and now >= last:
                return _stop(children, FOLLOWED)
            time.sleep(0.05)
    except KeyboardInterrupt:
        return _stop(children, "interrupted")


def _stop(children: list[Child], why: str) -> list[Ended]:
    """Ask those that still run to end, then make them; where all hang, their stacks say where."""
    running = [child for child in children if child.process.poll() is None]
    if why == "timeout":
        for child in running:
            child.ask_for_stacks()
    for child in running:
        child.process.send_signal(signal.SIGINT)
    for child in running:
        child.end(signal.SIGINT)
    return [why if child in running else child.process.wait() for child in children]


def _completed(plan: Plan) -> bool:
    try:
        return bool(read_manifest(Path(plan.folder))["outcome"] == "completed")
    except (UnreadableRecording, LookupError):
        return False


def prefixed(echo: Callable[[str], None], rank: int) -> Callable[[str], None]:
    """Says of each line which rank printed it."""
    return lambda text: echo(f"[rank {rank}] {text}")
