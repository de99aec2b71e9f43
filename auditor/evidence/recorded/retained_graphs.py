"""Autograd graphs that are still held when a step ends, by the variable that holds them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise
from statistics import median
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.graph import GraphRow

NODE_CAP = 20_000
"""The probe stops counting autograd nodes here (docs/recording.md)."""
A_FALL = 0.2
"""A drop by more than this share of the peak means that the holder was emptied: it is bounded."""

FEWEST_VALUES = 3
"""Below this many steps no growth is claimed."""


@dataclass(frozen=True)
class Root:
    """A variable that holds tensors with a graph. ``site``: the line that stores them, if found."""

    name: str
    site: Site | None
    holdings: tuple[GraphRow, ...]
    steps: int

    @property
    def depth(self) -> int:
        """Items below the variable at which tensors lie: 1 in ``self.losses[*]``."""
        return (len(self.name) - len(self.name.rstrip("[*]"))) // len("[*]")

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Tensors held, step by step."""
        return tuple(holding.tensors for holding in self.holdings)

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """Autograd nodes reachable, step by step, up to where the probe stopped counting."""
        return tuple(holding.nodes for holding in self.holdings if holding.nodes < NODE_CAP)

    @cached_property
    def held_bytes(self) -> tuple[int, ...]:
        """Saved tensors held, step by step; empty unless known for every step."""
        known = tuple(
            holding.held_bytes for holding in self.holdings if holding.held_bytes is not None
        )
        return known if len(known) == len(self.holdings) else ()

    @property
    def length(self) -> str:
        """Autograd nodes at the first and the last step, in words."""
        first, last = self.holdings[0].nodes, self.holdings[-1].nodes
        return (
            f"more than {NODE_CAP:,} autograd nodes"
            if first >= NODE_CAP
            else f"{first:,} autograd nodes, then {last:,}"
        )

    @property
    def walked(self) -> bool:
        """True if a later backward went through a carried graph: the training depends on it."""
        return any(holding.walked for holding in self.holdings)

    @property
    def read_back(self) -> bool:
        """True unless it was seen that no backward walks what it holds once that is stored."""
        return any(holding.read_back for holding in self.holdings)

    @property
    def oldest(self) -> int:
        """Age in steps of the oldest tensor seen."""
        return max((holding.oldest for holding in self.holdings), default=0)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        first, last = self.holdings[0], self.holdings[-1]
        facts = [
            ("tensors with a graph", amounts.from_to(str(first.tensors), str(last.tensors))),
            ("graph", self.length),
            ("oldest", f"{self.oldest} steps old"),
        ]
        if self.held_bytes:
            facts.append(
                (
                    "saved for backward",
                    amounts.from_to(
                        amounts.size(self.held_bytes[0]), amounts.size(self.held_bytes[-1])
                    ),
                )
            )
        return tuple(facts)

    def lasts(self, share: float) -> bool:
        """True if it held graphs at the ends of ``share`` of the steps, one after the other."""
        first, last = self.holdings[0].step, self.holdings[-1].step
        return last - first + 1 == len(self.holdings) >= share * self.steps

    def tensors_grow(self, share: float) -> bool:
        """True if it holds more tensors after ``share`` of the steps and was never emptied."""
        return self.lasts(share) and grows(self.tensors, share)

    def graph_grows(self, share: float) -> bool:
        """True if the graph behind it is longer, or holds more saved tensors, after ``share`` of
        the steps.

        Beyond what the probe counts, a tensor that is carried on with such a graph is taken to be
        added to: a sum.
        """
        if not self.lasts(share):
            return False
        return (
            grows(self.nodes, share)
            or grows(self.held_bytes, share)
            or self._carries_a_graph_too_long_to_count(share)
        )

    def _carries_a_graph_too_long_to_count(self, share: float) -> bool:
        ages = [
            holding.oldest
            for holding in self.holdings
            if holding.nodes >= NODE_CAP and holding.carried
        ]
        return grows(ages, share) and len(ages) >= share * self.steps

    def grew_until_emptied(self, stretch: int, share: float) -> bool:
        """True if it was emptied once in all the steps, and grew on ``share`` of ``stretch`` or more
        of them before or after that, while no backward needed it: the sum or list of an epoch.
        """
        if self.walked or not self.lasts(share):
            return False
        lengths = tuple(
            each.nodes + (each.oldest if each.nodes >= NODE_CAP else 0) for each in self.holdings
        )
        series = (self.tensors, self.held_bytes, lengths)
        return any(_grew_until_emptied(values, stretch, share) for values in series)

    def bytes_per_step(self) -> int | None:
        """Median growth of the saved tensors held, in bytes per step; None if not known or none."""
        if len(self.held_bytes) < FEWEST_VALUES:
            return None
        growth = round(median(after - before for before, after in pairwise(self.held_bytes)))
        return growth if growth > 0 else None

    def keeps_old(self, age: int) -> bool:
        """True if after most steps it held a tensor that was ``age`` steps old, while the steps
        stored new ones into it.

        What was made once and is never replaced (a graph built during set-up) is not the step's
        doing. A variable that some steps assign again keeps the last one's nodes, which cost
        nothing where a backward has freed what they saved.
        """
        old = sum(holding.carried > 0 and holding.oldest >= age for holding in self.holdings)
        # At the first boundary the probe cannot know what was carried.
        later = self.holdings[1:]
        return (
            2 * old > self.steps
            and any(holding.tensors > holding.carried for holding in later)
            and any(
                holding.carried and (holding.tensors > holding.carried or holding.held_bytes != 0)
                for holding in later
            )
        )


@dataclass(frozen=True)
class RetainedGraphs(Table):
    """Holders of graphs at the ends of the loud steps."""

    parts: ClassVar[tuple[str, ...]] = ("graphs", "steps")

    roots: tuple[Root, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> RetainedGraphs:
        """From the loud pass."""
        steps = len(evidence.get(Steps).loud)
        rows = [
            row
            for row in rows_of(evidence, GraphRow)
            if row.pass_name == "loud" and row.step < steps
        ]
        rows.sort(key=lambda row: (row.root, row.step))
        return cls(
            tuple(
                _root(evidence, list(mine), steps)
                for _, mine in groupby(rows, key=lambda row: row.root)
            )
        )

    def growing(self, *, share: float, steady: float) -> Iterator[Root]:
        """Roots that grow: in tensors on ``share`` of steps, or in graph on ``steady`` of them."""
        return (root for root in self.roots if root.tensors_grow(share) or root.graph_grows(steady))


def each_line_once(roots: Iterable[Root]) -> Iterator[Root]:
    """Roots, the first of each line that stores them: one object may have several names."""
    told: set[Site | str] = set()
    for root in roots:
        place = root.site or root.name
        if place not in told:
            told.add(place)
            yield root


def grows(values: Sequence[int], share: float) -> bool:
    """True if ``values`` rise on ``share`` of the steps, end higher and never fall by much."""
    if len(values) < FEWEST_VALUES:
        return False
    steps = [after - before for before, after in pairwise(values)]
    if min(steps) < -A_FALL * max(values):
        return False
    return values[-1] > values[0] and sum(step > 0 for step in steps) >= share * len(steps)


def _grew_until_emptied(values: Sequence[int], stretch: int, share: float) -> bool:
    falls = [
        place
        for place, (before, after) in enumerate(pairwise(values), 1)
        if after - before < -A_FALL * max(values)
    ]
    if len(falls) != 1:
        return False
    longest = max(values[: falls[0]], values[falls[0] :], key=len)
    return len(longest) >= stretch and grows(longest, share)


def _root(evidence: Evidence, rows: list[GraphRow], steps: int) -> Root:
    last = rows[-1]
    line, name = last.line, f"{last.name}{last.path}"
    site = evidence.recording.site_at(last.file, line, last.function) if line else None
    return Root(name, site, tuple(rows), steps)
