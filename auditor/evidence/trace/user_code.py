"""The user's code around operators of a trace, where it has Python frames or stacks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditor.model import Site

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.trace import Ints

LOOKED_AT = 64
"""Operators whose places are looked up at most: those of one kind mostly stand at one place."""


@dataclass(frozen=True)
class Where:
    """A place in the user's code; no site where the trace has no frames. A site that is not
    ``exact`` is a function's ``def``.
    """

    site: Site | None = None
    exact: bool = False

    def __str__(self) -> str:
        """The place in words where its line is only that of the function, else empty: `` in
        train_step``.
        """
        return f" in {self.site.function}" if self.site is not None and not self.exact else ""


NOWHERE = Where()
"""No place: the trace has no frames of the user's."""


def where(line: Timeline, rows: Ints) -> Where:
    """Where most of these operators (rows of the call tree) were called from."""
    found = Counter(place for place in line.places_of(rows[:LOOKED_AT]) if place is not None)
    if not found:
        return NOWHERE
    ((place, _),) = found.most_common(1)
    return Where(Site(place.file, place.line, place.function), place.exact)
