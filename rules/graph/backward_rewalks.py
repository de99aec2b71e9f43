"""Backward calls of one step that walk the same autograd nodes more than once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from auditor.model import Site

from .rows import RewalkRow

FEWEST_CALLS = 3
"""Calls of one line in a step from which it can be told that they walk ever more."""


Calls = tuple[RewalkRow, ...]
"""Backward calls of one step, in their order."""


@dataclass(frozen=True)
class Rewalk:
    """The calls of one step that belong together."""

    calls: Calls
    steps: int
    """Steps in which they did so."""

    @property
    def again(self) -> int:
        """Nodes walked again in the step."""
        return sum(call.again for call in self.calls)

    @property
    def share(self) -> float:
        """Of all nodes that these calls walked."""
        return self.again / max(1, sum(call.nodes for call in self.calls))

    @property
    def sites(self) -> tuple[Site, ...]:
        """Their lines, in the order of the source."""
        by_line = {(call.site.file, call.site.line): call.site for call in self.calls}
        return tuple(by_line[line] for line in sorted(by_line))

    @property
    def carrier(self) -> RewalkRow | None:
        """The last call of which it is known which line filled the variable with the earlier
        graph.
        """
        return next((call for call in reversed(self.calls) if call.stored is not None), None)


def growing(seen: Iterable[Calls], least: float) -> Iterator[Rewalk]:
    """Lines of which each call of a step walks the graphs of all calls before it, ever more of what
    was made since the first, on at least so many steps; ``seen`` are the calls of each step.
    """
    found: dict[tuple[str, int], list[Calls]] = {}
    for calls in seen:
        for line in dict.fromkeys(_line(call) for call in calls):
            mine = tuple(call for call in calls if _line(call) == line)
            if _grow(mine):
                found.setdefault(line, []).append(mine)
    for steps in found.values():
        if len(steps) >= least:
            yield Rewalk(steps[-1], len(steps))


def shared(seen: Iterable[Calls], least: float) -> Iterator[Rewalk]:
    """Groups of lines whose calls walk one part again that was there before the first of them, on at
    least so many steps.
    """
    found: dict[tuple[Site, ...], list[Rewalk]] = {}
    for calls in seen:
        group = Rewalk(_over_one_part(calls), 1)
        if group.calls:
            found.setdefault(group.sites, []).append(group)
    for steps in found.values():
        if len(steps) >= least:
            yield Rewalk(steps[-1].calls, len(steps))


def _grow(calls: Calls) -> bool:
    summed = all(call.summed for call in calls)
    newer = [call.newer for call in calls[1:]]
    return (
        summed
        and len(calls) >= FEWEST_CALLS
        and calls[1].again > 0
        and all(later > earlier for earlier, later in pairwise(newer))
    )


def _over_one_part(calls: Calls) -> Calls:
    """From the call that kept the part first to the last that walked it; none where one of them did
    anything else.
    """
    last = max((at for at, call in enumerate(calls) if call.again), default=-1)
    first = next((at for at, call in enumerate(calls) if call.kept), len(calls))
    mine = calls[first : last + 1]
    right = all(call.summed and not call.newer and call.again for call in mine[1:])
    return mine if len(mine) > 1 and right and mine[0].summed else ()


def _line(call: RewalkRow) -> tuple[str, int]:
    return call.site.file, call.site.line
