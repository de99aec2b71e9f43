"""Rows of steps."""

from typing import Any


def steps(number: int, name: str = "loud", **more: Any) -> list[dict[str, Any]]:
    """So many steps of a pass, each of 1 ms unless ``more`` says otherwise."""
    return [{"pass": name, "step": step, "us": 1000.0, **more} for step in range(number)]


def loud(step: int, **more: Any) -> dict[str, Any]:
    """A row of the loud pass."""
    return {"pass": "loud", "step": step, **more}


def quiet(step: int, **more: Any) -> dict[str, Any]:
    """A row of the quiet pass."""
    return {"pass": "quiet", "step": step, **more}
