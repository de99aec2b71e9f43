"""Work whose results nobody needed, by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import median
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.source.files import Function, Source, lines_of
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.sync import CopyRow
from auditor.recordings.schema.waste import ThrownRow
from auditor.rule import NotLooked
from auditor.syntax.index import called_in, names_in, nodes_in

REHEARSAL = "rehearsal"

TRAINING = frozenset({"backward", "manual_backward", "zero_grad"})
"""Calls by which the function is known that takes a training step: what it returns is its
caller's.
"""


@dataclass(frozen=True)
class Thrown:
    """A line and what it did for nothing on ``steps`` watched steps, per step: ``operators``, their
    ``share`` of the work of all, ``nbytes`` of results.

    ``others`` are further lines of the same; ``other`` is the backward whose gradients go through
    the line, or the line that had computed it before.
    """

    what: str
    site: Site
    steps: int
    operators: float
    share: float
    nbytes: int = 0
    op: str = ""
    owner: str = ""
    names: tuple[str, ...] = ()
    n: int = 0
    graph: bool = False
    products: int = 0
    other: Site | None = None
    others: tuple[Site, ...] = ()

    @property
    def lines(self) -> str:
        """The further lines, in words; empty where there are none."""
        own = dict.fromkeys(str(each) for each in self.others)
        return ", ".join(own)


@dataclass(frozen=True)
class ThrownWork(Table):
    """What the pass ``numbers`` saw; ``us`` of a step is the median of the timing pass, None
    without one.
    """

    parts: ClassVar[tuple[str, ...]] = ("thrown",)

    found: tuple[Thrown, ...] = ()
    copied: int = 0
    """Bytes that were copied to the device per step."""
    us: float | None = None
    operators: float = 0.0
    """Of a step, in all."""
    copied_from: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    """Lines that copy to the device in the rehearsal: other rules tell of these."""

    @classmethod
    def build(cls, evidence: Evidence) -> ThrownWork:
        """From what the pass left; of one line each."""
        rows = rows_of(evidence, ThrownRow)
        whole = next((row for row in rows if row.what == "all"), None)
        if whole is None:
            raise NotLooked("the precision pass was not finished")
        if whole.blind:
            raise NotLooked(whole.blind)
        if not whole.trained:
            raise NotLooked("no optimizer stepped in the precision pass")
        found = [_thrown(evidence, row) for row in rows if row.at is not None]
        quiet = own_times(evidence.get(Steps).quiet) if evidence.has("steps") else ()
        return cls(
            tuple(_by_line(found)),
            whole.nbytes,
            median(quiet) if quiet else None,
            whole.operators,
            frozenset(_copies(evidence)),
        )

    def of(self, *what: str) -> Iterator[Thrown]:
        """Those of these kinds."""
        return (each for each in self.found if each.what in what)


def handed_on(source: Source, site: Site) -> bool:
    """True if the statement gives a name to what the function that trains then returns: its caller
    may read it, in a run that is not this one.
    """
    function = source.index(site.file).scope_at(site.line)
    if not isinstance(function, Function) or not called_in(function) & TRAINING:
        return False
    returns = list(nodes_in(function, ast.Return, ast.Yield))
    if any(site.line in lines_of(node) for node in returns):
        return True
    assigns = list(nodes_in(function, ast.Assign, ast.AugAssign))
    handed = names_in((node for node in assigns if site.line in lines_of(node)), ast.Store)
    grown = -1
    while grown != len(handed):
        grown = len(handed)
        for node in assigns:
            if names_in(node.value, ast.Load) & handed:
                handed |= names_in(node, ast.Store)
    return bool(names_in(returns, ast.Load) & handed)


def read_on_some_steps(source: Source, site: Site) -> bool:
    """True if the statement gives a name to what a branch reads that is taken on some steps, as in
    ``if step % 100 == 0``: the steps that were watched may lie between these.
    """
    scope = source.index(site.file).scope_at(site.line)
    if scope is None:
        return False
    assigns = [
        node for node in nodes_in(scope, ast.Assign, ast.AnnAssign) if site.line in lines_of(node)
    ]
    named = names_in(assigns, ast.Store)
    counted = names_in((loop.target for loop in nodes_in(scope, ast.For)), ast.Store)
    counted |= names_in(nodes_in(scope, ast.AugAssign), ast.Store)
    return any(
        names_in(branch.body, ast.Load) & named and _changes(branch.test, counted)
        for branch in nodes_in(scope, ast.If)
        if site.line not in lines_of(branch)
    )


def _changes(test: ast.expr, counted: set[str]) -> bool:
    """Whether a condition is another one on each step, as far as it shows: a remainder, a counter of
    a loop, an order, or a function that is asked.
    """
    ordered = any(
        isinstance(order, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        for each in nodes_in(test, ast.Compare)
        for order in each.ops
    )
    remainder = any(isinstance(each.op, ast.Mod) for each in nodes_in(test, ast.BinOp))
    asked = called_in(test) - {"isinstance", "hasattr", "getattr", "len"}
    return ordered or remainder or bool(asked) or bool(names_in(test, ast.Load) & counted)


def _thrown(evidence: Evidence, row: ThrownRow) -> Thrown:
    recording = evidence.recording
    return Thrown(
        what=row.what,
        site=recording.site(row.at or 0),
        steps=row.steps,
        operators=row.operators,
        share=row.share,
        nbytes=row.nbytes,
        op=row.op,
        owner=row.owner,
        names=tuple(name for name in row.names if name),
        n=row.n,
        graph=row.graph,
        products=row.products,
        other=None if row.other is None else recording.site(row.other),
        others=tuple(recording.site(each) for each in row.lines),
    )


def _by_line(found: list[Thrown]) -> Iterator[Thrown]:
    """Several expressions of one line are one; but each table that it builds is its own."""
    lines: dict[tuple[str, str, int, str], Thrown] = {}
    for number, each in enumerate(found):
        owner = str(number) if each.what == "constant" else each.owner
        key = (each.what, each.site.file, each.site.line, owner)
        known = lines.get(key)
        lines[key] = (
            each
            if known is None
            else replace(
                known if known.share >= each.share else each,
                operators=known.operators + each.operators,
                share=known.share + each.share,
                nbytes=known.nbytes + each.nbytes,
                op=known.op if known.op == each.op else f"{known.op}, {each.op}",
                n=known.n + each.n,
                products=known.products + each.products,
                others=(*known.others, *each.others),
            )
        )
    for each in lines.values():
        others = {
            (site.file, site.line): site
            for site in each.others
            if (site.file, site.line) != (each.site.file, each.site.line)
        }
        yield replace(each, others=tuple(others.values()))


def _copies(evidence: Evidence) -> Iterator[tuple[str, int]]:
    rehearsed = evidence.inside(REHEARSAL)
    if rehearsed is not None and rehearsed.has(CopyRow.part):
        for row in rehearsed.rows(CopyRow):
            site = rehearsed.recording.site(row.at)
            yield site.file, site.line
