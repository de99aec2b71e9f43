"""Step times and memory as the lines of a report's charts; slow steps are marked with what was seen
to take their time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from auditor import amounts
from auditor.evidence.recorded.steps import device_times, step_of
from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import TraceFacts
from auditor.model.charts import Series
from auditor.recordings.schema.data import BatchRow
from auditor.recordings.schema.run import StepRow, known

SLOW, LEAST_US = 1.5, 2000.0
"""Times the median, and us beyond it, from which a step is marked: below that it is the system's
ordinary unrest.
"""

EXPLAINED = 0.25
"""Share of a slow step's extra time from which a cause is named."""

MARKS = 200

TIMED = {
    "quiet": amounts.pass_named("quiet"),
    "anomaly_off": "anomaly mode held off",
    "eager_held": "torch.compile held off",
    "compiled_again": "compiled again",
    "warmup": "warm-up",
}
"""Passes without instruments, and what their line is called: steps of the others take longer than
the program's own.
"""


def step_series(evidence: Evidence, steps: Sequence[StepRow]) -> tuple[Series, ...]:
    """Step times of the passes without instruments, as the report's other times without waiting for
    the processor, then device and host memory at the end of each step.

    All know the step that did not complete, where one ended the run.
    """
    ended = _ended(evidence)
    timed = not evidence.recording.device.simulated
    times = _times(steps, _waits(evidence), device_times(evidence)) if timed else ()
    return tuple(replace(line, ended=ended) for line in (*times, *_memory(steps)))


def _ended(evidence: Evidence) -> tuple[float, str] | None:
    error = evidence.recording.manifest.get("error") or {}
    step = evidence.recording.ended_in
    return (
        None
        if step is None
        else (
            float(step),
            str(error.get("type") or evidence.recording.manifest.get("outcome") or ""),
        )
    )


def _waits(evidence: Evidence) -> dict[int, float]:
    """Us that each quiet step waited for its loaders."""
    waits: defaultdict[int, float] = defaultdict(float)
    for row in evidence.rows(BatchRow):
        if row.pass_name == "quiet":
            waits[row.step] += row.wait_us
    return dict(waits)


def traced_series(facts: TraceFacts | None) -> tuple[Series, ...]:
    """Step times of a trace that stands alone."""
    us = facts.step_us if facts is not None else ()
    numbers = facts.step_numbers or range(len(us)) if facts is not None else ()
    return (Series("in the trace", "us", tuple(map(float, numbers)), us),) if us else ()


def _times(
    steps: Sequence[StepRow], waits: Mapping[int, float], timed: Mapping[tuple[str, int], float]
) -> Iterator[Series]:
    for name, said in TIMED.items():
        numbered = [
            (number, row, step_of(row, timed).own_us)
            for number, row in enumerate(steps)
            if row.pass_name == name
        ]
        marks = tuple(_marks(numbered, waits))[:MARKS] if name == "quiet" else ()
        if numbered:
            numbers, _, own_us = zip(*numbered, strict=True)
            yield Series(said, "us", tuple(map(float, numbers)), own_us, marks)


def _memory(steps: Sequence[StepRow]) -> Iterator[Series]:
    for field, label in (
        ("allocated", "device memory allocated"),
        ("reserved", "device memory reserved"),
        ("rss", "host memory (resident)"),
    ):
        # Instruments hold host memory of their own: a chart of it with them would show us, not the
        # program.
        own = [
            (number, row)
            for number, row in enumerate(steps)
            if field != "rss" or row.pass_name in TIMED
        ]
        found = [
            (number, float(held))
            for number, row in own
            if (held := known(getattr(row, field))) is not None
        ]
        if found:
            numbers, held_bytes = zip(*found, strict=True)
            yield Series(label, "bytes", tuple(map(float, numbers)), held_bytes)


def _marks(
    numbered: Sequence[tuple[int, StepRow, float]], waits: Mapping[int, float]
) -> Iterator[tuple[float, str]]:
    """Steps that took much longer than their pass's median, and what took most of the excess."""
    if not numbered:
        return
    usual = median(own_us for _, _, own_us in numbered)
    rows = [row for _, row, _ in numbered]
    causes = [
        _causes(row, before, waits) for row, before in zip(rows, [rows[0], *rows], strict=False)
    ]
    usual_causes = {cause: median(each[cause] for each in causes) for cause in causes[0]}
    for (number, _, own_us), taken in zip(numbered, causes, strict=True):
        extra = own_us - usual
        if extra >= LEAST_US and own_us >= SLOW * usual:
            yield (
                float(number),
                _explained(extra, {cause: taken[cause] - usual_causes[cause] for cause in taken}),
            )


def _causes(row: StepRow, before: StepRow, waits: Mapping[int, float]) -> dict[str, float]:
    """Causes of a step's time, in us. A retry of the allocator has none: it explains all."""
    now, then = known(row.retries), known(before.retries)
    retried = now is not None and then is not None and now > then
    return {
        "garbage collection": row.gc_us,
        "waiting for the loader": waits.get(row.step, 0.0),
        "torch.compile compiled": row.us if row.compiles else 0.0,
        "the allocator gave cached memory back to the device": row.us if retried else 0.0,
    }


def _explained(extra: float, more: Mapping[str, float]) -> str:
    cause = max(more, key=lambda name: more[name])
    if more[cause] < EXPLAINED * extra:
        return f"{amounts.duration(extra)} more than the median"
    part = f", {amounts.duration(more[cause])} of them" if more[cause] < extra else ""
    return f"{amounts.duration(extra)} more than the median{part}: {cause}"
