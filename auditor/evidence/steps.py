"""The audited steps, pass by pass: their times, the allocator's counters, the host's memory."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import ClassVar

from auditor.evidence.table import Table, rows_of
from auditor.recording import Recording, Row

LEAST_FOR_DIFFERENCE = 5
"""Steps that each of two passes must have before their medians are compared."""


@dataclass(frozen=True)
class Step:
    """One completed step. Times in us, memory in bytes; allocator counters are None without CUDA."""

    number: int
    us: float
    rss: int = 0
    allocated: int | None = None
    reserved: int | None = None
    peak_allocated: int | None = None
    retries: int = 0
    ooms: int = 0
    gc_us: float = 0.0
    """Time in the garbage collector."""
    queued_us: float = 0.0
    """Time that the step's thread was ready to run while something else had the processor (0 where the system does not say)."""


@dataclass(frozen=True)
class Steps(Table):
    """Completed steps of the passes that are judged. Any of them may be empty: a target may end early."""

    parts: ClassVar[tuple[str, ...]] = ("steps",)

    quiet: tuple[Step, ...] = ()
    loud: tuple[Step, ...] = ()
    anomaly_off: tuple[Step, ...] = ()
    quiet_from: int = 0
    """Number in the run of the first quiet step; a step's own ``number`` is that in its pass."""

    @classmethod
    def build(cls, recording: Recording) -> Steps:
        """From the ``steps`` part; where device events timed the step, theirs is its time."""
        rows = rows_of(recording, "steps")
        device_us = {(row["pass"], row["step"]): row["us"] for row in recording.rows("device_times")}
        quiet, loud, anomaly_off = (_steps_of(rows, name, device_us) for name in ("quiet", "loud", "anomaly_off"))
        return cls(quiet, loud, anomaly_off, recording.run_step("quiet", 0))

    @property
    def median_us(self) -> float | None:
        """Median time of a quiet step in us; None if there was none."""
        return median(step.us for step in self.quiet) if self.quiet else None

    def share_of_step(self, us: float) -> float:
        """``us`` as a share of the mean quiet step, as the report has it; 0 where there is no time to compare with."""
        whole = sum(step.us for step in self.quiet)
        return us * len(self.quiet) / whole if whole else 0.0

    def saved_with_anomaly_off(self) -> float | None:
        """How many us a step is faster with anomaly mode off; None if not measured, or not beyond the noise.

        Noise is the 95 % interval of the difference of two medians, from the notches of box plots
        (McGill, Tukey and Larsen 1978): 1.57 IQR / sqrt(n) for each.
        """
        on, off = [step.us for step in self.quiet], [step.us for step in self.anomaly_off]
        if min(len(on), len(off)) < LEAST_FOR_DIFFERENCE:
            return None
        saved = median(on) - median(off)
        return saved if saved > (_notch(on) ** 2 + _notch(off) ** 2) ** 0.5 else None


def _notch(values: list[float]) -> float:
    low, _, high = quantiles(values, n=4)
    return float(1.57 * (high - low) / len(values) ** 0.5)


_Times = dict[tuple[str, int], float]


def _steps_of(rows: list[Row], pass_name: str, device_us: _Times) -> tuple[Step, ...]:
    mine = (row for row in rows if row["pass"] == pass_name)
    return tuple(_step(row, device_us.get((pass_name, row["step"]), float(row["us"]))) for row in mine)


def _step(row: Row, us: float) -> Step:
    return Step(
        number=row["step"],
        us=us,
        rss=row.get("rss") or 0,
        allocated=row.get("allocated"),
        reserved=row.get("reserved"),
        peak_allocated=row.get("peak_allocated"),
        retries=row.get("retries") or 0,
        ooms=row.get("ooms") or 0,
        gc_us=row.get("gc_us") or 0.0,
        queued_us=row.get("queued_us") or 0.0,
    )
