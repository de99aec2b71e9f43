"""What re-runs of a target measured (``audit verify``), as a report holds it: frozen data, standard
library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Status = Literal["better", "same", "worse", "broken", "inconclusive"]
"""``same`` says that enough pairs of runs show no difference; ``inconclusive`` that there were too
few to tell.
"""


@dataclass(frozen=True)
class Verified:
    """What a re-run with the patch measured (``audit verify``). Times in us, memory in bytes.

    ``ratio`` is the step time after to before (below 1: faster), between ``ratio_low`` and
    ``ratio_high`` from ``pairs`` of runs; None where it was not timed (a remedy for a GPU, checked
    without one) or too few pairs fitted the budget. ``same_result`` is None where the target itself
    does not repeat its losses. ``note`` says in a sentence what decided.
    """

    status: Status
    step_us_before: float | None
    step_us_after: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    peak_bytes_before: int | None = None
    peak_bytes_after: int | None = None
    same_result: bool | None = None
    pairs: int = 0
    syncs_before: float | None = None
    syncs_after: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """What ``audit verify`` did: all good patches ``together``, and how steady the target and the
    machine are.

    ``noise`` is the interval of the ratio between runs of the same unpatched code (low, high); None
    from too few pairs. ``repeatable`` is True where two unpatched runs with the same seeds gave the
    same losses, bit for bit.
    """

    together: Verified | None
    codes: tuple[str, ...]
    noise: tuple[float, float] | None
    repeatable: bool
    runs: int
    steps: int
    seconds: float
    notes: tuple[str, ...] = ()
