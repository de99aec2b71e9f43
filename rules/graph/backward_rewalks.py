"""GRAPH007: a graph walked again each step."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from auditor import amounts
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, lines_of
from auditor.evidence.source.statements import shorten
from auditor.evidence.table import Rows
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import LOOPS, blocks_of, called_in, nodes_in

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
        by_line = {call.site.place: call.site for call in self.calls}
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
        for line in dict.fromkeys(call.site.place for call in calls):
            mine = tuple(call for call in calls if call.site.place == line)
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


REMEDIES = {
    "growing": "Detach what is passed on before the next backward "
    "(state = state.detach()), and drop retain_graph: that is truncated backpropagation. Where "
    "gradients shall flow through all parts, add the losses up and call backward once, after the "
    "last.",
    "shared": "Add the losses up and call backward once: (a + b).backward() leaves the same sums "
    "of gradients, walks the shared part once and needs no retain_graph.",
}


@dataclass(frozen=True)
class GraphWalkedAgain(Rule):
    """Backward calls of one step walk the same graph again."""

    code = "GRAPH007"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.6, "Share of the diagnosed steps in which the calls must do so.")
    again: float = knob(
        0.25, "Share of the nodes walked that several losses must walk again to be a note."
    )

    def detect(self, calls: Rows[RewalkRow], steps: Steps, source: Source) -> Iterator[Finding]:
        done = (call for call in calls if call.step < len(steps.loud))
        seen = [tuple(of_step) for _, of_step in groupby(done, key=lambda call: call.step)]
        least = self.share * len(steps.loud)
        for rewalk in growing(seen, least):
            yield _finding(rewalk, "growing", _grown(rewalk), _carried(rewalk))
        for rewalk in shared(seen, least):
            if rewalk.share >= self.again and one_after_the_other(source, rewalk.sites):
                yield _finding(rewalk, "shared", _shared(rewalk), _lines(rewalk))


def _grown(rewalk: Rewalk) -> str:
    counts = ", ".join(amounts.digits(call.again) for call in rewalk.calls[:4])
    more = " ..." if len(rewalk.calls) > 4 else ""
    said = (
        f"each of {len(rewalk.calls)} backward calls in a step goes again through the graphs of "
        f"those before it ({counts}{more} autograd nodes)"
    )
    carrier = rewalk.carrier
    if carrier is None or carrier.stored is None:
        return said
    return (
        f"{said}: `{carrier.name}` hands them on, line {carrier.stored.line}, "
        f"`{shorten(carrier.stored.text)}`"
    )


def _shared(rewalk: Rewalk) -> str:
    return (
        f"{len(rewalk.calls)} backward calls one after the other walk the same part of the graph: "
        f"{amounts.percent(rewalk.share)} of the autograd nodes are walked again"
    )


def _carried(rewalk: Rewalk) -> tuple[FoundAt, ...]:
    carrier, line = rewalk.carrier, rewalk.sites[0]
    if carrier is None or carrier.stored is None or carrier.stored == line:
        return ()
    both = (carrier.stored, line)
    return tuple(
        FoundAt(site, shorten(site.text)) for site in sorted(both, key=lambda site: site.line)
    )


def _lines(rewalk: Rewalk) -> tuple[FoundAt, ...]:
    sites = rewalk.sites
    return tuple(FoundAt(site, shorten(site.text)) for site in sites) if len(sites) > 1 else ()


def _finding(rewalk: Rewalk, kind: str, said: str, places: tuple[FoundAt, ...]) -> Finding:
    return Finding(
        rewalk.sites[0],
        said,
        steps=rewalk.steps,
        per_step=float(len(rewalk.calls)),
        severity=Severity.NOTE if kind == "shared" else None,
        facts=(
            ("backward calls", str(len(rewalk.calls))),
            ("nodes walked again", f"{amounts.digits(rewalk.again)} in a step"),
        ),
        places=places,
        remedy=Remedy(REMEDIES[kind]),
    )


# -- backward calls --------------------------------------------------------------------------------
# Is there anything between the backward calls of a step but backward calls?


QUIET_CALLS = frozenset(
    {"backward", "scale", "item", "detach", "float", "mean", "sum", "append"}
    | {"zip", "enumerate", "range", "reversed", "len", "list", "items", "values"}
)
"""Calls that read no gradient and change no parameter."""

_PLAIN = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Pass, ast.For)


def one_after_the_other(source: Source, sites: Sequence[Site]) -> bool:
    """True if nothing between these lines, or in the loop around the one line, can read gradients
    or change parameters: one backward of the sum does the same.
    """
    if not sites or len({site.file for site in sites}) != 1:
        return False
    lines = [site.line for site in sites]
    return any(
        _only_backward(node, block, lines)
        for node in source.nodes(sites[0].file)
        for block in blocks_of(node)
    )


def _only_backward(node: ast.AST, block: list[ast.stmt], lines: list[int]) -> bool:
    """Of one block: its statements from the first of the lines to the last, or all of a loop's."""
    looped = isinstance(node, LOOPS) and len(lines) == 1
    between = [
        each
        for each in block
        if looped or set(lines_of(each)) & set(range(min(lines), max(lines) + 1))
    ]
    return (
        (looped or len(between) > 1)
        and all(any(line in lines_of(each) for each in between) for line in lines)
        and all(isinstance(each, _PLAIN) and _quiet(each) for each in between)
    )


def _quiet(statement: ast.stmt) -> bool:
    """It calls nothing but what is known to leave gradients alone, and names none."""
    return called_in(statement) <= QUIET_CALLS and not any(
        node.attr == "grad" for node in nodes_in(statement, ast.Attribute)
    )
