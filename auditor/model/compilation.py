"""What ``torch.compile`` did in a run, as a report holds it. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass

from auditor.model.sites import Site


@dataclass(frozen=True)
class CompiledPart:
    """A function or module that the program gave to ``torch.compile``, with the options that it
    named. It ran in ``steps`` of the ``watched`` ones.
    """

    site: Site
    what: str
    options: str
    steps: int
    watched: int


@dataclass(frozen=True)
class Gain:
    """How many us a step is faster compiled than held eager, and between what that lies; negative
    where it is slower. ``eager_us`` is the median step without the compiler.
    """

    us: float
    low: float
    high: float
    eager_us: float


@dataclass(frozen=True)
class Compilation:
    """Counts and times of the passes that no instrument disturbs.

    ``compiled`` frames took ``us`` together; ``again`` of them since a guard had failed. ``breaks``
    are lines at which a graph ends, ``during`` the timed steps in which something was compiled.
    """

    compiled: int
    us: float
    again: int
    breaks: int
    during: int
    parts: tuple[CompiledPart, ...] = ()
    gain: Gain | None = None

    @property
    def paid_after(self) -> int | None:
        """Steps after which compiling has paid; None where it gains nothing that is proven."""
        if self.gain is None or not 0.0 < self.gain.low <= self.gain.us:
            return None
        steps = self.us / self.gain.us
        return max(1, round(steps)) if math.isfinite(steps) else None
