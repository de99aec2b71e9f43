"""Rows of steps."""

from typing import Any

from auditor.recordings.schema.data import BatchRow


def steps(number: int, name: str = "loud", **more: Any) -> list[dict[str, Any]]:
    """So many steps of a pass, each of 1 ms unless ``more`` says otherwise."""
    return [{"pass": name, "step": step, "us": 1000.0, **more} for step in range(number)]


def batch(loader: int, step: int, wait_us: float = 0.0, **more: Any) -> BatchRow:
    """What a loader gave to a step."""
    return BatchRow(loader=loader, step=step, wait_us=wait_us, **more)


def loud(step: int, **more: Any) -> dict[str, Any]:
    """A row of the loud pass."""
    return {"pass": "loud", "step": step, **more}


def quiet(step: int, **more: Any) -> dict[str, Any]:
    """A row of the quiet pass."""
    return {"pass": "quiet", "step": step, **more}
