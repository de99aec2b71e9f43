"""Rows of the steps as the report reads them: with the device's times, and the most memory that
they held.
"""

from __future__ import annotations

from msgspec import structs

from auditor.evidence.recorded.step_series import TIMED
from auditor.evidence.table import Evidence
from auditor.recordings.schema.run import DeviceTimeRow, StepRow, known


def step_rows(evidence: Evidence) -> list[StepRow]:
    """Rows of the ``steps`` part, with the device's times where there are any."""
    device = {(row.pass_name, row.step): row.us for row in evidence.rows(DeviceTimeRow)}
    return [
        structs.replace(row, us=device.get((row.pass_name, row.step), row.us))
        for row in evidence.rows(StepRow)
    ]


def device_peak(steps: list[StepRow], unknown: int | None) -> int | None:
    """Most bytes that tensors on the device needed at once; ``unknown`` where no step counted
    them.
    """
    return max(
        (peak for row in steps if (peak := known(row.peak_allocated)) is not None), default=unknown
    )


def host_peak(steps: list[StepRow]) -> int | None:
    """Of the passes without instruments, as in the chart; of all where there is none of those (a
    rehearsal).
    """
    seen = [(row.pass_name, rss) for row in steps if (rss := known(row.rss)) is not None]
    own = [rss for name, rss in seen if name in TIMED]
    return max(own or (rss for _, rss in seen), default=None)
