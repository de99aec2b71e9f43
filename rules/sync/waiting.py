"""SYNC001 to 5, 9 and 13: the host waits for a value, or for the device."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor import amounts
from auditor.allocator.replay import LOSSES
from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.reads import Reads
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.snapshot.file import SnapshotData, snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.state_at import Origins, origins_of
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import TraceSteps, inside
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.recordings.schema.sync import CallRow
from auditor.rule import knob

from ..copying import TransferRule
from ..lines import LineRule
from ..reading import ReadingRule

WAITS = ("synchronize", "Event.synchronize", "Stream.synchronize")
TIMED = (
    "training results stay the same, but host timers around it would no longer measure the "
    "device's work"
)


class ExplicitSynchronize(LineRule):
    """The step waits for the device on purpose."""

    code = "SYNC004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = "Remove it; to time work on the device, use torch.cuda.Event(enable_timing=True)."

    def detect(self, calls: Lines[CallRow], machine: Machine, source: Source) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("nothing waits for one")
        would = "the host waits for the GPU"
        if not machine.cuda:
            would = "on a GPU the host would wait for all queued work"
        for line in self.usual(calls.lines(lambda call: call.name in WAITS)):
            yield self.report(
                line,
                f"{slowest(line)}() on {line.pattern}: {would}",
                basis="estimated" if machine.cuda else "none",
                facts=facts_of(line),
                remedy=self.dropped(line, source, slowest(line), reason=TIMED),
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits, waits.of("explicit"), lambda place: f"{place.api} outside of any operator"
        )


def slowest(line: Line[CallRow]) -> str:
    """The function called there; of several the one that took longest."""
    return max(line.rows, key=lambda call: call.us).name


def facts_of(line: Line[CallRow]) -> tuple[tuple[str, str], ...]:
    """Rows for the report."""
    return ("call", slowest(line)), *line.facts


COMMANDS = {
    "reset_peak_memory_stats": "the peak read later is only that of one step",
    "reset_accumulated_memory_stats": "the totals read later are only those of one step",
    "empty_cache": "cached blocks return to the device, and the next step must obtain them again",
    "ipc_collect": "it looks for memory shared with other processes",
}
QUERIES = {
    "memory_stats": "it copies all of the allocator's counters into a dict",
    "memory_summary": "it formats all of the allocator's counters",
    "memory_snapshot": "it walks all of the allocator's blocks",
    "mem_get_info": "it asks the driver",
    "max_memory_allocated": "it copies all of the allocator's counters to read one",
    "memory_allocated": "it copies all of the allocator's counters to read one",
    "memory_reserved": "it copies all of the allocator's counters to read one",
    "max_memory_reserved": "it copies all of the allocator's counters to read one",
}
COLLECTIONS = {"gc.collect": "a full collection visits every container object of the process"}
UNPRICED = {
    "rehearsal": "seen in rehearsal, which has no times",
    "null": "seen on a null device, which has no times",
}
WHAT_IT_DOES = COMMANDS | QUERIES | COLLECTIONS


@dataclass(frozen=True)
class AllocatorCallEveryStep(LineRule):
    """Memory housekeeping runs on every step."""

    code = "SYNC009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = "Move it out of the step: once after the warm-up, or every N steps."

    query_cost: float = knob(0.005, "Report a query of at least this share of the step's time.")
    collect_cost: float = knob(0.01, "Report gc.collect() from this share of the step's time on.")
    flushes: int = knob(
        5, "In a snapshot: report if the second half empties the cache at least this often."
    )
    again: float = knob(
        1.0, "In a snapshot: report if at least this multiple of the peak reserve is got again."
    )

    def detect(
        self, calls: Lines[CallRow], steps: Steps, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        seen = list(self.usual(self._costly(calls, steps, machine)))
        if not seen:
            machine.nothing_seen_without_cuda("calls after a check for a GPU did not happen")
        for line in seen:
            name = slowest(line)
            priced = machine.cuda or name in COLLECTIONS
            price = (
                f"{amounts.duration(line.us_per_step)} per step"
                if priced
                else UNPRICED[machine.device]
            )
            yield self.report(
                line,
                f"{name}() on {line.pattern}: {WHAT_IT_DOES[name]} ({price})",
                basis="measured" if priced else "none",
                severity=Severity.NOTE if name in QUERIES else None,
                facts=facts_of(line),
                remedy=self._dropped(line, source),
            )

    def in_snapshot(self, churn: CacheChurn) -> Iterator[Finding]:
        if (
            churn.flushes < self.flushes
            or churn.again_bytes < self.again * churn.peak_reserved
            or churn.retries
        ):
            return
        who = (
            "empty_cache() here"
            if churn.site is not None
            else "something (the history does not tell what: empty_cache?)"
        )
        yield Finding(
            churn.site,
            f"{who} emptied the cache {churn.flushes} times in the second half of the history, and "
            f"{amounts.size(churn.again_bytes)} had to be obtained again by cudaMalloc",
            basis="none",
            seen_on="snapshot",
            facts=churn.facts,
        )

    def _costly(
        self, calls: Lines[CallRow], steps: Steps, machine: Machine
    ) -> Iterator[Line[CallRow]]:
        """Calls that matter: commands on a GPU, and others there that take a share."""
        if machine.gpu_path:
            yield from calls.lines(lambda call: call.name in COMMANDS)
        for line in calls.lines(lambda call: call.name in COLLECTIONS):
            if steps.share_of_step(line.us_per_step) >= self.collect_cost:
                yield line
        for line in calls.lines(lambda call: machine.cuda and call.name in QUERIES):
            if steps.share_of_step(line.us_per_step) >= self.query_cost:
                yield line

    def _dropped(self, line: Line[CallRow], source: Source) -> Remedy:
        call = slowest(line).rpartition(".")[2]
        if not call.startswith("reset_"):
            reason = "a run close to its limit may rely on the memory that this frees"
            return self.dropped(line, source, call, reason=reason)
        safe = next(source.calls_of(*QUERIES), None) is None
        reason = "it only resets counters, which nothing in the program reads"
        if not safe:
            reason = "the counters that it resets are read"
        return self.dropped(line, source, call, safe=safe, reason=reason)


# -- cache churn -----------------------------------------------------------------------------------
# Cached memory that goes back to the device and is obtained again: what ``empty_cache`` in a loop
# looks like from below.


@dataclass(frozen=True)
class CacheChurn(Table):
    """The second half of a device's history: ``flushes`` of the cache, and the bytes that were
    obtained again after one.

    ``site`` is the line that called ``empty_cache`` most often; None if the history does not tell.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    flushes: int = 0
    retries: int = 0
    again_bytes: int = 0
    peak_reserved: int = 0
    site: Site | None = None
    facts: tuple[tuple[str, str], ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> CacheChurn:
        """Of the device that obtained most memory again. Raises :class:`NotLooked` for none."""
        course = max(evidence.get(Allocations).devices, key=lambda each: each.late_churn)
        data = snapshot_of(evidence)
        flushes, site = _flushes(data, course, origins_of(evidence))
        return cls(
            flushes, course.retries, course.late_churn, course.peak_reserved, site, course.facts
        )


def _flushes(data: SnapshotData, course: Course, origins: Origins) -> tuple[int, Site | None]:
    trace = data.trace(course.device)
    late, calls = 0, Counter[Site]()
    for lost, group in groupby(enumerate(trace), key=lambda item: item[1]["action"] in LOSSES):
        index, event = next(group)
        if not lost or index < len(trace) // 2:
            continue
        late += 1
        frames = event.get("frames") or ()
        site = (
            origins.site(frames)
            if any("empty_cache" in frame["name"] for frame in frames)
            else None
        )
        if site is not None:
            calls[site] += 1
    return late, max(calls, key=calls.__getitem__, default=None)


LEAST_SHARE = 0.5
"""Share of steps on which a wait must be seen: a trace has few, and one may be a warm-up."""


def waits_in_trace(
    waits: TraceWaits, places: Iterable[WaitPlace], say: Callable[[WaitPlace], str]
) -> Iterator[Finding]:
    """A finding per place that waits on most steps; a note if unusual or steps are unmarked."""
    priced = waits.marked and waits.timed
    for place in places:
        usual = waits.marked and place.pattern.share >= LEAST_SHARE
        often = (
            f"the host waits on {place.pattern}"
            if waits.marked
            else f"{amounts.count(place.n, 'wait')} in the trace, which marks no steps"
        )
        yield Finding(
            place.site,
            f"{say(place)}{inside(place.site)}: {often}",
            steps=len(place.seen) if waits.marked else 0,
            per_step=place.per_step if waits.marked else 0.0,
            lost_us_per_step=place.lost_us_per_step if priced else None,
            basis="estimated" if priced else "none",
            seen_on="trace",
            severity=None if usual else Severity.NOTE,
            facts=place.facts,
            changes=(Change("waits", place.rows),) if priced else (),
        )


CHECKED = "checks on the host that it worked (no matrix is singular, it converged)"
LINALG = re.compile(r"^aten::(_?linalg_|inverse$|cholesky$|svd$|logdet$|pinverse$)")
"""Operators whose read is that check."""
UNCHECKED = (
    "torch.linalg.inv_ex, solve_ex, cholesky_ex, lu_factor_ex and ldl_factor_ex do the same without "
    "the check: they also return info, a tensor that can be read every N steps. "
    "eigh, eig, svd, lstsq and pinv have no such form: call them on fewer steps, or on the host "
    "if the matrices are small."
)


class ScalarReadEveryStep(ReadingRule):
    """A tensor becomes a Python number in the step."""

    code = "SYNC001"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 1
    advice = (
        "Keep the value on the device: add it to a running tensor (detached), or collect several "
        "values and read them with one torch.stack(...).tolist(), only every N steps. A value that "
        "the computation needs (a bound, a divisor) can stay a tensor."
    )

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("scalar")):
            does = CHECKED if place.checks else "turns a tensor into a Python number"
            remedy = self.less_often(reads, source, place)
            if place.checks and not place.library:  # no patch leaves a check of torch.linalg out
                remedy = Remedy(UNCHECKED)
            said = f"`{place.text}` {does}{place.through}: {place.waits('this')}"
            yield self.report(place, said, severity=severity, remedy=remedy)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("scalar"),
            lambda place: (
                f"`{place.operator}` {CHECKED}"
                if LINALG.search(place.operator)
                else f"`{place.operator}` turns a tensor into a Python number"
            ),
        )


class BranchOnTensor(ReadingRule):
    """Python branches on a tensor in the step."""

    code = "SYNC002"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Keep the decision on the device: torch.where, torch.minimum, or multiply by the "
        "condition. For a guard, collect the condition in a tensor and read it every N steps."
    )

    def detect(self, reads: Reads) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("branch")):
            said = f"Python branches on the tensor `{place.text}`: {place.waits('this')}"
            yield self.report(place, said, severity=severity, remedy=Remedy(self.instead(place)))

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("branch"),
            lambda place: f"Python branches on a tensor (`{place.operator}`)",
        )


class CopyToHostEveryStep(ReadingRule):
    """A tensor is copied to the host in the step."""

    code = "SYNC003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 2
    advice = (
        "Collect on the device and copy once every N steps; or copy into pinned memory "
        "with non_blocking=True and read it a step later."
    )

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("transfer")):
            said = (
                f"`{place.text}` copies a tensor to the host{place.through}: {place.waits('this')}"
            )
            remedy = self.less_often(reads, source, place)
            yield self.report(place, said, severity=severity, remedy=remedy)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("copy to host"),
            lambda place: f"`{place.operator}` copies a tensor to the host",
        )


class DataDependentShape(ReadingRule):
    """A result's size depends on values on the device."""

    code = "SYNC005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 3
    advice = (
        "Keep the size fixed: use masked_fill or torch.where with the same mask, pass output_size or "
        "minlength, or use the indices from topk."
    )

    def detect(self, reads: Reads) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("shape")):
            said = f"the size of `{place.text}` depends on values{place.through}"
            said += f": {place.waits('this')}"
            yield self.report(place, said, severity=severity, remedy=Remedy(self.instead(place)))

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("shape"),
            lambda place: f"the size of the result of `{place.operator}` depends on values",
        )


class StepBoundByCopiesToHost(TransferRule):
    """The device waits for copies to the host."""

    code = "SYNC013"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Reduce on the device and copy the result, or copy every N steps. What must go to the host "
        "goes into pinned memory with non_blocking=True, on a side stream while the next kernels "
        "run."
    )

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        yield from self.bound(steps, "to_host", "to the host")
