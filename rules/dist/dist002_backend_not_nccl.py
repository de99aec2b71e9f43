"""DIST002: a job on GPUs communicates with a backend of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .distributed import Job
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class BackendOfTheHost(Rule):
    """Ranks with GPUs communicate over a backend of the host."""

    code = "DIST002"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(1, "Operators of process groups in the trace below which it is a note.")

    def detect(self, job: Job) -> Iterator[Finding]:
        host_only = job.backend in ("gloo", "mpi")
        if not host_only or not job.kernels or job.collectives or job.world_size < 2:
            return
        loud = job.operators >= self.least
        yield Finding(
            None,
            f"{job.world_size} ranks with GPUs communicate over {job.backend}: gradients go "
            "through the host's memory",
            steps=job.steps if job.marked else 0,
            per_step=job.operators / job.steps if job.marked else 0.0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(
                ("operators of process groups", f"{job.operators:,}"),
                ("kernels on the device", f"{job.kernels:,}"),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            'Call torch.distributed.init_process_group("nccl") (RCCL answers to that name on AMD).'
        )
