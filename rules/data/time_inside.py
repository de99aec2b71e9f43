"""What calls that a batch waits for cost the step, or the worker that makes the batch."""

from __future__ import annotations

from auditor.evidence.recorded.steps import Steps
from auditor.recordings.schema import ListedRow, RereadRow


def time_inside(row: ListedRow | RereadRow, batches: int, steps: Steps) -> tuple[float, float]:
    """Us in a step and the share of the step's own time; of what a worker called us in each of its
    ``batches`` and the share of its time for them. Of no step and no batch it is nothing.
    """
    if row.where == "worker":
        return row.us / max(1, batches), row.us / row.fetch_us if row.fetch_us else 0.0
    us = row.us / max(1, len(steps.loud))
    return us, steps.share_of_step(us)
