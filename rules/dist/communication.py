"""DIST002 to 4 and 9: what ranks send each other, and wait for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.recorded.data_parallel import ONE_PROCESS
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timed_timeline
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Finding, Severity
from auditor.model.what_if import Change
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineRule
from .rows import CollectiveRow

if TYPE_CHECKING:
    from auditor.timeline import Timeline


MARKS = ("c10d::", "gloo:", "mpi:", "nccl:", "record_param_comms")
"""How operators begin that belong to a process group."""


@dataclass(frozen=True)
class Job(Table):
    """One rank's part in a distributed job. Times are sums inside the steps in us."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    backend: str = ""
    """As torch names it: ``nccl``, ``gloo``, ``cpu:gloo,cuda:nccl``; empty where the trace does not
    say.
    """
    rank: int | None = None
    world_size: int = 1
    steps: int = 1
    marked: bool = False
    window_us: float = 0.0
    kernels: int = 0
    collectives: tuple[tuple[str, int], ...] = ()
    """Kernels of collectives on the device, and how many."""
    operators: int = 0
    """Operators of process groups on the host."""
    gloo: int = 0
    """Those of them that name gloo."""
    communication_us: float = 0.0
    exposed_us: float = 0.0
    of_span: float = 0.0
    """Exposed part of the time from the device's first work to its last, steps or not."""

    @classmethod
    def build(cls, evidence: Evidence) -> Job:
        """From the trace. Raises :class:`NotLooked` where no device worked."""
        line = timed_timeline(evidence)
        if line.device_missing or line.idle is None:
            raise NotLooked("the trace shows no GPU")
        return _job(line)

    @property
    def exposed_share(self) -> float:
        """Part of the steps' time with a collective running and no other kernel."""
        return self.exposed_us / self.window_us if self.window_us else 0.0


def _job(line: Timeline) -> Job:
    info, use = line.trace.info, line.devices[0]
    assert line.idle is not None
    windows = line.idle.windows
    talk = next((one for one in line.communication if one.device == use.device), None)
    calls = line.operator_calls.items()
    return Job(
        backend=(info.backend or "").lower(),
        rank=info.rank,
        world_size=info.world_size or 1,
        steps=line.steps.count,
        marked=line.steps.marked,
        window_us=windows.length / 1e3,
        kernels=use.kernels,
        collectives=tuple(talk.names.items()) if talk else (),
        operators=sum(number for name, number in calls if name.startswith(MARKS)),
        gloo=sum(number for name, number in calls if name.startswith("gloo:")),
        communication_us=talk.busy.overlap(windows) / 1e3 if talk else 0.0,
        exposed_us=talk.exposed.overlap(windows) / 1e3 if talk else 0.0,
        of_span=talk.exposed.length / max(1, use.span_ns) if talk else 0.0,
    )


@dataclass(frozen=True)
class BackendOfTheHost(Rule):
    """Ranks with GPUs communicate through a host backend."""

    code = "DIST002"
    severity = Severity.WARNING
    since = "0.1"
    advice = 'Call torch.distributed.init_process_group("nccl") (the name of RCCL on AMD, too).'

    def detect(self, job: Job) -> Iterator[Finding]:
        host_only = job.backend in ("gloo", "mpi")
        if not host_only or not job.kernels or job.collectives or job.world_size < 2:
            return
        yield Finding(
            None,
            f"{job.world_size} ranks with GPUs communicate over {job.backend}: gradients travel "
            "through host memory",
            steps=job.steps if job.marked else 0,
            per_step=job.operators / job.steps if job.marked else 0.0,
            seen_on="trace",
            severity=None if job.operators else Severity.NOTE,
            facts=(
                ("process group operators", f"{job.operators:,}"),
                ("kernels on the device", f"{job.kernels:,}"),
            ),
        )


@dataclass(frozen=True)
class ExposedCommunication(Rule):
    """The device only communicates for a large part of the step."""

    code = "DIST003"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Overlap communication with the backward pass (DistributedDataParallel, FSDP with prefetch), "
        "reduce less often (no_sync() while accumulating), or send fewer bytes (bf16 gradients)."
    )

    share: float = knob(0.1, "Report from this share of the steps' time in exposed communication.")
    severe: float = knob(0.4, "Report an error from this share if all ranks were recorded.")

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
            f"exposed communication takes {amounts.percent(share)} of the steps' "
            f"time{who} ({amounts.percent(hidden)} of all communication is overlapped){waited}",
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


@dataclass(frozen=True)
class RankKeepsOthersWaiting(Rule):
    """One rank arrives late at the collectives, and the others wait for it."""

    code = "DIST004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Look at the late rank's own findings first: they make it late. Balance the "
        "work if it computes more."
    )

    share: float = knob(
        0.1,
        "Report if the median rank waits this share of the step for the late one.",
    )
    severe: float = knob(0.2, "Report an error from this share.")
    last: float = knob(
        1 / 3, "Report only if the rank comes last at this share of the collectives."
    )
    least_steps: int = knob(3, "Report a note if the traces have fewer steps than this.")

    def detect(self, ranks: Ranks) -> Iterator[Finding]:
        if len(ranks.rows) < 2:
            raise NotLooked("one trace cannot tell; pass the folder with the traces of all ranks")
        if ranks.late is None:
            raise NotLooked(
                "the ranks share no collective from which their clocks could be aligned"
            )
        if (
            ranks.waited_share < self.share
            or ranks.last < self.last * ranks.shared
            or ranks.waited_us <= ranks.clocks_us
        ):
            return
        excess = ranks.excess()
        why = f": it spends {amounts.duration(excess[1])} more {excess[0]}" if excess else ""
        yield Finding(
            None,
            f"the other ranks wait {amounts.duration(ranks.waited_us)} of each step "
            f"({amounts.percent(ranks.waited_share)}) for rank {ranks.late}, "
            f"last at {ranks.last} of {ranks.shared} collectives{why}",
            steps=ranks.steps,
            lost_us_per_step=ranks.waited_us if ranks.steps >= self.least_steps else None,
            basis="estimated" if ranks.steps >= self.least_steps else "none",
            seen_on="trace",
            severity=self._severity(ranks),
            facts=(*ranks.facts, ("clocks aligned within", amounts.duration(ranks.clocks_us))),
        )

    def _severity(self, ranks: Ranks) -> Severity | None:
        if ranks.steps < self.least_steps:
            return Severity.NOTE
        return Severity.ERROR if ranks.waited_share >= self.severe else None


@dataclass(frozen=True)
class BarrierEveryStep(LineRule):
    """A call of barrier makes all ranks wait for one another on each step"""

    code = "DIST009"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Remove it: collectives wait for all ranks anyway. To time a step, use "
        "torch.cuda.Event or this audit."
    )

    def detect(
        self, collectives: Lines[CollectiveRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        if not len(collectives) and machine.ranks < 2:
            raise NotLooked(ONE_PROCESS)
        reason = "communication outside torch (through files) may rely on it"
        for line in self.usual(collectives.lines(lambda call: call.what == "barrier")):
            ranks = max(call.ranks for call in line.rows)
            if ranks > 1:
                yield self.report(
                    line,
                    f"dist.barrier() makes {ranks} ranks wait for one another on {line.pattern}",
                    facts=line.facts[:1] if machine.simulated else line.facts,
                    remedy=self.dropped(line, source, "barrier", reason=reason),
                )
