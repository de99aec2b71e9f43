"""SYNC001, 2, 3, 5 and 13: the host waits for a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.reads import Reads
from auditor.evidence.source.files import Source
from auditor.evidence.trace.facts import TraceSteps
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity
from auditor.model.what_if import Change

from ..copying import TransferRule
from ..reading import ReadingRule

LEAST_SHARE = 0.5
"""Share of the trace's steps on which a wait must be seen: traces hold few steps, and one may be a
warm-up.
"""


def waits_in_trace(
    waits: TraceWaits, places: Iterable[WaitPlace], say: Callable[[WaitPlace], str]
) -> Iterator[Finding]:
    """A finding for each place that waits on most steps; a note where it is not usual, or the trace
    marks no steps.
    """
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
            f"{say(place)}{place.where}: {often}",
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


@dataclass(frozen=True)
class ScalarReadEveryStep(ReadingRule):
    """A tensor becomes a Python number in the step."""

    code = "SYNC001"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 1
    advice = (
        "Keep the value on the device: add loss.detach() to a running tensor, or collect "
        "several values and read them with one "
        "torch.stack(...).tolist(), only every N steps. A value that the computation needs (a bound, "
        "a divisor) can stay a tensor."
    )

    def detect(self, reads: Reads, source: Source) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("scalar")):
            does = CHECKED if place.checks else "turns a tensor into a Python number"
            more = self.less_often(reads, source, place)
            if place.checks and not place.library:  # no patch leaves a check of torch.linalg out
                more["remedy"] = Remedy(UNCHECKED)
            said = f"`{place.text}` {does}{place.through}: {place.waits('it')}"
            yield self.report(place, said, severity=severity, **more)

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


@dataclass(frozen=True)
class BranchOnTensor(ReadingRule):
    """Python branches on a tensor in the step."""

    code = "SYNC002"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Keep the decision on the device: torch.where, torch.minimum, or multiply by "
        "the condition. "
        "For a guard, collect the condition in a tensor and read it every N steps."
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


@dataclass(frozen=True)
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
            said = f"`{place.text}` copies a tensor to the host{place.through}: {place.waits('it')}"
            more = self.less_often(reads, source, place)
            yield self.report(place, said, severity=severity, **more)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("copy to host"),
            lambda place: f"`{place.operator}` copies a tensor to the host",
        )


@dataclass(frozen=True)
class DataDependentShape(ReadingRule):
    """A result's size depends on values on the device."""

    code = "SYNC005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 3
    advice = (
        "Keep the size fixed: multiply by the mask, use torch.where or masked_fill, pass "
        "output_size or minlength, or use the indices from topk."
    )

    def detect(self, reads: Reads) -> Iterator[Finding]:
        for place, severity in self.reads(reads.places("shape")):
            said = f"the size of `{place.text}` depends on values{place.through}"
            said += f": {place.waits('it')}"
            yield self.report(place, said, severity=severity, remedy=Remedy(self.instead(place)))

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(
            waits,
            waits.of("shape"),
            lambda place: f"the size of the result of `{place.operator}` depends on values",
        )


@dataclass(frozen=True)
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
