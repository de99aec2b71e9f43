"""DATA012: a whole file is read for each sample."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema import RereadRow
from auditor.rule import Rule, knob

from .time_inside import time_inside


@dataclass(frozen=True)
class FileReadAgain(Rule):
    """A whole file is read again for each sample."""

    code = "DATA012"
    severity = Severity.WARNING
    since = "0.1"

    again: float = knob(0.5, "Share of a line's reads that must read a file of the batch again.")
    share: float = knob(
        0.1, "Share of the step, or of a batch's making, from which it is reported."
    )
    least_us: float = knob(200.0, "Time in a step, or for a batch, from which it is reported (us).")

    def detect(self, files: Rows[RereadRow], steps: Steps, machine: Machine) -> Iterator[Finding]:
        for each in files:
            us, share = time_inside(each, each.batches, steps)
            if not (each.batches and each.n and steps.loud) or each.again < self.again * each.n:
                continue
            if share < self.share or us < self.least_us:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"times for a batch: {taken}, {part} of a worker's time for it"
                if in_worker
                else f"times a step: {taken}, {part} of it"
            )
            reads = each.n / each.batches
            yield Finding(
                each.site,
                f"{each.name} reads a whole file ({os.path.basename(each.path)}, "
                f"{amounts.size(each.bytes)}) again and again, {reads:.3g} {costs}",
                steps=len(steps.loud),
                per_step=reads,
                lost_us_per_step=None if in_worker else us * each.again / each.n,
                basis="none" if in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if in_worker else None,
                facts=(("file", each.path), ("time inside", taken)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Read it once, in __init__ or when the first sample is asked for, and only index it "
            'here: np.load(..., mmap_mode="r") maps an array that is larger than memory.'
        )
