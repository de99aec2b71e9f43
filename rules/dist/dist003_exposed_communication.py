"""DIST003: the device waits for communication that no computation hides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from .distributed import Job
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Finding, Remedy, Severity
from auditor.model.what_if import Change
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class ExposedCommunication(Rule):
    """The device does nothing but communicate for a large part of the step."""

    code = "DIST003"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.1, "Share of the steps' time in exposed communication from which it is reported."
    )
    severe: float = knob(0.4, "Share from which it is an error, where all ranks were looked at.")

    def detect(self, job: Job, ranks: Ranks) -> Iterator[Finding]:
        share = job.exposed_share
        if not job.collectives or max(share, job.of_span) < self.share:
            return
        who = f" on rank {job.rank}" if ranks.rows else ""
        hidden = 1 - job.exposed_us / job.communication_us if job.communication_us else 0.0
        waited = (
            f", and the others wait {amounts.percent(ranks.waited_share)} of theirs for it"
            if ranks.waited_share >= self.share
            else ""
        )
        yield Finding(
            None,
            f"communication that nothing hides takes {amounts.percent(share)} of the steps' "
            f"time{who} "
            f"({amounts.percent(hidden)} of all communication is hidden){waited}",
            steps=job.steps if job.marked else 0,
            lost_us_per_step=job.exposed_us / job.steps if job.marked else None,
            basis="estimated" if job.marked else "none",
            seen_on="trace",
            severity=self._severity(job, ranks),
            facts=(
                *((name, f"{number} in the trace") for name, number in job.collectives[:4]),
                *ranks.facts,
            ),
            changes=(Change("collectives"),) if job.marked else (),
        )

    def _severity(self, job: Job, ranks: Ranks) -> Severity | None:
        if not job.marked or min(job.exposed_share, job.of_span) < self.share:
            return Severity.NOTE
        return Severity.ERROR if ranks.rows and job.exposed_share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Reduce while the backward pass computes (DistributedDataParallel, FSDP with "
            "prefetch), reduce less often "
            "(no_sync() while accumulating), or send fewer bytes (bf16 gradients)."
        )
