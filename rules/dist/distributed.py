"""Communication in one rank's trace: the backend, its collectives, and how much of them no
computation hid.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timed_timeline
from auditor.rule import NotLooked

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
