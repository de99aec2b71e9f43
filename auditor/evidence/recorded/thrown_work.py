"""Work whose results nobody needed, by line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from msgspec.structs import replace

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.source.files import Function, Source, lines_of
from auditor.evidence.table import Evidence, Rows, Table
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
class ThrownWork(Table):
    """What the pass ``numbers`` saw; ``us`` of a step is the timing pass's median."""

    parts: ClassVar[tuple[str, ...]] = ("thrown",)

    found: tuple[ThrownRow, ...] = ()
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
        rows = evidence.get(Rows[ThrownRow])
        whole = next((row for row in rows if row.what == "all"), None)
        if whole is None:
            raise NotLooked("the precision pass was not finished")
        if whole.blind:
            raise NotLooked(whole.blind)
        if not whole.trained:
            raise NotLooked("no optimizer stepped in the precision pass")
        found = [row for row in rows if row.at is not None]
        quiet = own_times(evidence.get(Steps).quiet) if evidence.has("steps") else ()
        return cls(
            tuple(_by_line(found)),
            whole.nbytes,
            median(quiet) if quiet else None,
            whole.operators,
            frozenset(_copies(evidence)),
        )

    def of(self, *what: str) -> Iterator[ThrownRow]:
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


def _by_line(rows: list[ThrownRow]) -> Iterator[ThrownRow]:
    """Several expressions of one line are one; but each table that it builds is its own."""
    kinds: dict[tuple[object, ...], list[ThrownRow]] = {}
    for number, row in enumerate(rows):
        owner = number if row.what == "constant" else row.owner
        kinds.setdefault((row.what, row.own.place, owner), []).append(row)
    for same in kinds.values():
        most = max(same, key=lambda row: row.share)
        yield replace(
            most,
            operators=sum(row.operators for row in same),
            share=sum(row.share for row in same),
            nbytes=sum(row.nbytes for row in same),
            op=", ".join(dict.fromkeys(row.op for row in same)),
            n=sum(row.n for row in same),
            products=sum(row.products for row in same),
            lines=[at for row in same for at in row.lines],
        ).read_from(most.home)


def _copies(evidence: Evidence) -> Iterator[tuple[str, int]]:
    rehearsed = evidence.inside(REHEARSAL)
    if rehearsed is not None and rehearsed.has(CopyRow.part):
        for row in rehearsed.rows(CopyRow):
            site = rehearsed.recording.site(row.at)
            yield site.file, site.line
