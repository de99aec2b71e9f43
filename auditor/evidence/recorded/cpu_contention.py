"""Whether the machine was busy while the steps were timed: how long they waited for a processor,
and how much they vary without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles

from auditor import amounts
from auditor.batch_means import BUSY, RUN_TO_RUN
from auditor.evidence.recorded.steps import Step, own_times, queued_share

QUEUED = RUN_TO_RUN / BUSY
"""Share of the steps' time spent waiting for a processor (0.1) from which the machine counts as
busy: from there on what others take beside the wait (caches, the other half of a core) moves a
median by more than runs on a quiet machine differ."""

SOMEWHAT, UNEVEN = 0.03, 1.5
"""From a smaller share on it counts as busy too where the steps vary much: their third quartile is
this many times the first. Without any waiting a wide spread is the program's own, and nothing is
said."""

ENOUGH = 10
"""Steps below which quartiles say nothing."""


@dataclass(frozen=True)
class CpuContention:
    """``queued`` is the share (0 to 1) of the steps' time in which they waited; ``uneven`` the
    third quartile over the first.
    """

    queued: float = 0.0
    uneven: float = 1.0

    @classmethod
    def of(cls, steps: tuple[Step, ...]) -> CpuContention:
        """Of the steps of a pass without instruments."""
        us = own_times(steps)
        low, _, high = quantiles(us, n=4) if len(us) >= ENOUGH else (1.0, 1.0, 1.0)
        return cls(queued_share(steps), high / low if low > 0.0 else 1.0)

    @property
    def busy(self) -> bool:
        """True where other work had the processors for so long that all times of the run are less
        certain than usual.
        """
        return self.queued >= QUEUED or (self.queued >= SOMEWHAT and self.uneven >= UNEVEN)

    @property
    def caution(self) -> str:
        """One sentence for whoever reads the findings: what it means, and what to do; empty on a
        quiet machine.
        """
        if not self.busy:
            return ""
        return (
            f"the machine was busy (steps waited {amounts.percent(self.queued)} of their time for "
            "a processor, which is taken off "
            "every measured time): do not trust small differences, and audit again with other "
            "programs ended or on processors of "
            "its own (taskset)"
        )
