"""What the rules about Python loops have in common: what a loop costs that was timed."""

from __future__ import annotations

from auditor import amounts


def saved_us(us: float | None, turns: float) -> float | None:
    """Of a loop of ``us`` in each step what all its ``turns`` but one take; None where it was not
    timed.
    """
    return None if us is None else us * (1.0 - 1.0 / max(1.0, turns))


def timed(us: float | None) -> tuple[tuple[str, str], ...]:
    """Its time as a fact."""
    return () if us is None else (("time in the loop", f"{amounts.duration(us)} per step"),)
