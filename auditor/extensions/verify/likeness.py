"""In what two audits can be compared: which rows of the table cannot, and why; two that share
nothing are refused.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from auditor.batch_means import FEWEST_BATCHES
from auditor.extensions.verify.intervals import Run
from auditor.model import Report
from auditor.model.devices import Input, device_named, input_named

Row = Literal["step_us", "device_bytes", "host_bytes", "syncs", "findings"]
"""Rows of the table, by what they hold."""

NUMBERS: tuple[Row, ...] = ("step_us", "device_bytes", "host_bytes", "syncs")

LIVE = ("a run", "a rehearsal")
"""Kinds of audit that run a program: these may be compared with each other, by their findings."""

_FILES: dict[Input, str] = {"snapshot": "a memory snapshot", "checkpoint": "a scan of checkpoints"}

NO_TIMES = "a rehearsal gives no times and plays its device"


@dataclass(frozen=True)
class Likeness:
    """``barred`` has the reason for each row that cannot be compared; ``told`` what else differs, a
    sentence each.
    """

    barred: dict[Row, str]
    told: tuple[str, ...] = ()


def kind_of(report: Report) -> str:
    """What was judged: ``a run``, ``a rehearsal``, ``a trace``, ``a memory snapshot`` or ``a scan
    of checkpoints``.
    """
    run = report.run
    if device_named(run.device).simulated:
        return "a rehearsal"
    if (file := _FILES.get(input_named(run.device))) is not None:
        return file
    return "a run" if run.recorded_at or run.outcome != "completed" else "a trace"


def refusal(before: Report, after: Report) -> str:
    """Why nothing in the two can be compared; empty where something can."""
    kinds = kind_of(before), kind_of(after)
    live = all(kind in LIVE for kind in kinds)
    if kinds[0] != kinds[1] and not live:
        return f"{kinds[0]} and {kinds[1]} have nothing that could be compared"
    if live and program_of(before.run.target) != program_of(after.run.target):
        return (
            f"{before.run.target} and {after.run.target} are different programs, whose steps are "
            "not the same work"
        )
    return ""


def program_of(target: str) -> str:
    """One name for each way to name a program: ``a/b.py:step`` and ``a.b:step``, ``a/b.py`` and
    ``-m a.b``.

    Of an absolute path only the file's name counts: two checkouts have the same program at two
    places.
    """
    name = target.removeprefix("-m ").strip()
    file, _, attribute = name.rpartition(":") if ":" in name else (name, "", "")
    file = (
        file[: -len(".py")]
        if file.endswith(".py")
        else file.replace(".", "/")
        if os.sep not in file
        else file
    )
    file = os.path.basename(file) if os.path.isabs(file) else os.path.normpath(file)
    return f"{file}:{attribute}"


def likeness(before: Report, after: Report) -> Likeness:
    """What can be compared of two that are not refused. Whose step times are of other steps is seen
    in their recordings.
    """
    barred: dict[Row, str] = {}
    for rows, reason in _bars(before, after):
        for row in rows:
            barred.setdefault(row, reason)
    return Likeness(barred, tuple(_told(before, after)))


def _bars(before: Report, after: Report) -> Iterator[tuple[tuple[Row, ...], str]]:
    one, other = before.run, after.run
    if kind_of(before) != kind_of(after):
        yield NUMBERS, NO_TIMES
    if one.device != other.device:
        yield NUMBERS, f"on {one.device} and on {other.device}"
    if one.world_size != other.world_size:
        yield NUMBERS, f"in {one.world_size} and in {other.world_size} processes"
    for rows, name, what in _MACHINE:
        values = [side.environment.get(name, "") for side in (before, after)]
        if all(values) and values[0] != values[1]:
            yield rows, f"{what} {values[0]} and {values[1]}"
    if (one.steps, one.warmup) != (other.steps, other.warmup):
        steps = (
            f"{one.steps} steps after {one.warmup} and {other.steps} after {other.warmup} of "
            "warm-up"
        )
        yield ("device_bytes", "host_bytes", "syncs"), steps
    if one.outcome != other.outcome:
        yield ("device_bytes", "host_bytes", "syncs"), "one of the two ended early"


_MACHINE: tuple[tuple[tuple[Row, ...], str, str], ...] = (
    (("step_us", "device_bytes"), "device", "on other devices:"),
    (("step_us",), "processor", "on other processors:"),
    (("step_us",), "torch_threads", "numbers of threads:"),
)
"""Facts of the environment, the rows that lean on them, and how a difference is said."""


def _told(before: Report, after: Report) -> Iterator[str]:
    one, other = before.run, after.run
    versions = (("torch", one.torch, other.torch), ("python", one.python, other.python))
    auditors = ("torch-step-audit", before.tool.get("version", ""), after.tool.get("version", ""))
    for name, old, new in (*versions, auditors):
        if old != new and old and new:
            yield f"the two differ in their {name}, {old} and {new}: what changed may be its doing"
    if (one.steps, one.warmup) != (other.steps, other.warmup):
        yield (
            f"{one.steps} steps were audited before and {other.steps} after: a rule that counts "
            "steps may find something new, or no "
            "longer, for that alone"
        )
    for side, run in (("first", one), ("second", other)):
        if run.outcome != "completed":
            yield (
                f"the {side} ended early ({run.outcome}): what it did not reach could not be found "
                "there"
            )


def common(
    before: Sequence[Run], after: Sequence[Run]
) -> tuple[tuple[Run, ...], tuple[Run, ...], tuple[int, int] | None]:
    """Both sides cut to the steps that all of their runs timed, counted from the program's
    beginning.

    The third is the first and the last of them (0-based) where something was cut off, else None.
    Fewer than ``FEWEST_BATCHES`` (5) steps in common are none: both sides are empty then.
    """
    runs = (*before, *after)
    spans = {(run.first, run.first + len(run.us)) for run in runs}
    if len(spans) < 2:
        return tuple(before), tuple(after), None
    first, end = max(begin for begin, _ in spans), min(end for _, end in spans)
    if end - first < FEWEST_BATCHES:
        return (), (), (first, end - 1)
    cut = [
        replace(run, us=run.us[first - run.first : end - run.first], first=first) for run in runs
    ]
    return tuple(cut[: len(before)]), tuple(cut[len(before) :]), (first, end - 1)
