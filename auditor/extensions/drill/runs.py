"""The runs of a drill: one undisturbed, one with the fault, or one that is killed and one that
starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from auditor.errors import AuditProblem, TargetFailed, TargetProblem
from auditor.extensions.drill.log import Log, count
from auditor.recordings.folder import Recording
from auditor.runs import child_process
from auditor.runs.plan import Device, Drill, Plan
from auditor.runs.progress import Progress, silent
from auditor.runs.project_copy import ProjectCopy
from auditor.runs.target import parse

PARTS = ("drill",)

RESTARTED_STEPS = 3
"""Steps of the restart after a kill: the first says where it went on."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What to drill. ``steps`` of the target in each run, the fault's step among them; ``deadline``
    by ``time.monotonic``.
    """

    target: str
    args: tuple[str, ...]
    fault: Drill
    steps: int
    device: Device
    out: Path
    deadline: float | None = None

    @property
    def offset(self) -> int:
        """The target's number of the first step that is recorded: a script's first one ends before
        its steps are known.
        """
        return 1 if parse(self.target).kind == "script" else 0

    def plan(self, name: str, where: ProjectCopy, *, fault: Drill | None, steps: int) -> Plan:
        """The plan of one run."""
        drill = (
            msgspec.structs.replace(fault, step=fault.step - self.offset)
            if fault is not None
            else Drill()
        )
        steps = max(1, steps - self.offset)
        folder = str(self.out / "recordings" / name)
        return where.plan(
            Plan(self.target, self.args, steps, 0, self.device, folder, PARTS, purpose=drill)
        )


@dataclass(frozen=True)
class Pair:
    """The two runs of a drill, by what they are called: (undisturbed, disturbed), or (killed,
    restarted).

    ``changed`` are files of the working directory, not of its copy, that changed while they ran.
    """

    names: tuple[str, str]
    first: Log
    second: Log
    environment: dict[str, str]
    changed: tuple[str, ...] = ()


def run(order: Order, say: Say, progress: Progress = silent) -> Pair:
    """Make both runs; ``progress`` is told of their steps. Raises :class:`AuditProblem` where
    nothing can be drilled, :class:`TargetFailed` for the target's own.
    """
    if order.fault.step < order.offset:
        raise AuditProblem(
            "a script's step 0 ends before its steps are known",
            f"use --inject {order.fault.what}@1 or later",
        )
    return (_killed if order.fault.what == "kill" else _disturbed)(order, say, progress)


def _disturbed(order: Order, say: Say, progress: Progress) -> Pair:
    say(f"running {count(order.steps, 'step')} undisturbed")
    [with_none], changed = _in_copies(order, [("undisturbed", None, order.steps)], progress)
    first = Log.read(with_none, order.offset)
    _complete(first, order)
    say(f"running the same steps with {order.fault.what}@{order.fault.step}")
    [with_fault], also = _in_copies(order, [("disturbed", order.fault, order.steps)], progress)
    second = Log.read(with_fault, order.offset)
    _planted(second, order)
    return Pair(
        ("undisturbed", "disturbed"),
        first,
        second,
        with_none.manifest["environment"],
        tuple({*changed, *also}),
    )


def _killed(order: Order, say: Say, progress: Progress) -> Pair:
    say(
        f"running until step {order.fault.step}, killing it there, and starting it again in the "
        "same folder"
    )
    runs = [
        ("killed", order.fault, order.steps),
        ("restarted", None, RESTARTED_STEPS + order.offset),
    ]
    recordings, changed = _in_copies(
        order,
        runs,
        progress,
        until=lambda recording: _planted(Log.read(recording, order.offset), order),
    )
    logs = [Log.read(recording, order.offset) for recording in recordings]
    return Pair(
        ("killed", "restarted"), logs[0], logs[1], recordings[0].manifest["environment"], changed
    )


def _in_copies(
    order: Order,
    runs: list[tuple[str, Drill | None, int]],
    progress: Progress,
    until: Callable[[Recording], None] = lambda recording: None,
) -> tuple[list[Recording], tuple[str, ...]]:
    """Runs that follow each other in one copy of the working directory, and what changed in the
    original all the same.

    ``until`` may refuse to go on after the first.
    """
    recordings: list[Recording] = []
    with ProjectCopy(Path.cwd(), apart=order.out) as where:
        for name, fault, steps in runs:
            plan = order.plan(name, where, fault=fault, steps=steps)
            recordings.append(
                child_process.record_once(plan, order.deadline, progress, lambda text: None)
            )
            if len(recordings) == 1:
                until(recordings[0])
    return recordings, where.changed


def _complete(log: Log, order: Order) -> None:
    """The undisturbed run must get beyond the step of the fault by itself."""
    _in_time(log)
    if log.outcome != "completed":
        raise TargetFailed(f"undisturbed, the target ended after {_after(log)} with {log.said}")
    if order.fault.step not in log.ends:
        raise TargetProblem(
            f"{order.target} ended after {_after(log)}: there is no step {order.fault.step} to "
            "drill"
        )


def _planted(log: Log, order: Order) -> None:
    if log.injected is not None:
        return
    _in_time(log)
    if log.outcome != "completed":
        raise TargetFailed(
            f"the target ended after {_after(log)}, before anything was planted, with {log.said}"
        )
    if log.exhausted and order.fault.step not in log.ends:
        raise TargetProblem(
            f"{order.target} ended after {_after(log)}: there is no step {order.fault.step} to "
            "drill"
        )
    what = {
        "batch": "batch or module input",
        "activation": "module's output",
        "gradient": "gradient of an optimizer's parameter",
    }
    raise TargetProblem(
        f"from step {order.fault.step} on no floating-point {what[order.fault.where]} was seen to "
        "plant the fault in",
        "give another --where, or more --steps",
    )


def _in_time(log: Log) -> None:
    if log.outcome == "interrupted":
        raise KeyboardInterrupt
    if log.outcome == "timeout" and log.injected is None:
        raise TargetFailed(
            f"the target did not get to the fault in the time given ({_after(log)} done)"
        )


def _after(log: Log) -> str:
    return count(max(log.ends, default=-1) + 1, "step")
