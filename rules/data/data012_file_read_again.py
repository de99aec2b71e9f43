"""DATA012: a whole file is read for each sample."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .reread_files import RereadFile, RereadFiles


@dataclass(frozen=True)
class FileReadAgain(Rule):
    """A whole file is read again for each sample."""

    code = "DATA012"
    severity = Severity.WARNING
    since = "0.1"

    again: float = knob(0.5, "Share of a line's reads that must read a file of the batch again.")
    share: float = knob(0.1, "Share of the step, or of a batch's making, from which it is told.")
    least_us: float = knob(200.0, "Time in a step, or for a batch, from which it is told (us).")

    def detect(self, files: RereadFiles, machine: Machine) -> Iterator[Finding]:
        for each in files.lines:
            dear = each.share >= self.share and each.us >= self.least_us
            if not dear or each.again < self.again:
                continue
            yield Finding(
                each.site,
                f"{each.name} reads a whole file ({os.path.basename(each.path)}, "
                f"{amounts.size(each.size)}) again and again, {_costs(each)}",
                steps=each.steps,
                per_step=each.reads,
                lost_us_per_step=None if each.in_worker else each.us * each.again,
                basis="none" if each.in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if each.in_worker else None,
                facts=(("file", each.path), ("time inside", amounts.duration(each.us))),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Read it once, in __init__ or when the first sample is asked for, and only index it "
            'here: np.load(..., mmap_mode="r") maps an array that is larger than memory.'
        )


def _costs(each: RereadFile) -> str:
    share, time = amounts.percent(each.share), amounts.duration(each.us)
    if each.in_worker:
        return f"{each.reads:.3g} times for a batch: {time}, {share} of a worker's time for it"
    return f"{each.reads:.3g} times a step: {time}, {share} of it"
