"""KERN008: a module is called several times in a row, with a small batch each time."""

from __future__ import annotations

import ast
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from auditor import amounts
from auditor.evidence.source.files import Source, lines_of, unparsed
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import blocks_of, names_in, nodes_in

from ..placing import places_of
from .rows import ForwardsRow


@dataclass(frozen=True)
class ForwardsOfSmallBatches(Rule):
    """A module is called several times in a row with small batches."""

    code = "KERN008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Join the batches, call the module once and cut the result: "
        "a, b, c = module(torch.cat([x, y, z])).chunk(3)."
    )

    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a batch above which the device may be busy with it for as long."
    )

    def detect(self, forwards: ForwardsInRow) -> Iterator[Finding]:
        for each in forwards.worth(self.share, self.elements):
            yield Finding(
                each.sites[0],
                f"{each.module} is called {len(each.sites)} times in a row, each time with a small "
                f"batch of its own: {amounts.percent(each.share)} of the watched forward is inside",
                steps=each.steps,
                per_step=float(len(each.sites)),
                places=places_of(*each.sites),
                facts=(("numbers in a batch", f"{each.elements:,}"),),
            )


# -- forwards in row -------------------------------------------------------------------------------
# Modules that are called several times in a row, each time with a batch of its own.


@dataclass(frozen=True)
class InRow:
    """``sites`` call a ``module`` one after the other with tensors of at most ``elements`` numbers;
    ``share`` of the time of the middle watched step.
    """

    sites: tuple[Site, ...]
    module: str
    elements: int
    share: float
    steps: int


@dataclass(frozen=True)
class ForwardsInRow(Table):
    """Those whose source shows that no call needs what another gave; ``steps`` were watched."""

    parts: ClassVar[tuple[str, ...]] = ("forwards",)

    steps: int = 0
    rows: tuple[InRow, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ForwardsInRow:
        """From the precision pass."""
        steps = evidence.steps_of("numbers")
        alike: defaultdict[tuple[tuple[int, ...], str], list[ForwardsRow]] = defaultdict(list)
        for row in rows_of(evidence, ForwardsRow):
            alike[tuple(row.lines), row.module].append(row)
        found = (_in_row(evidence, rows) for rows in alike.values())
        source = evidence.get(Source)
        return cls(steps, tuple(each for each in found if separate_calls(source, each.sites)))

    def worth(self, share: float, elements: int) -> Iterator[InRow]:
        """Those on every step, of small tensors, that take so much of it."""
        for each in self.rows:
            if each.steps >= self.steps and each.share >= share and each.elements <= elements:
                yield each


def _in_row(evidence: Evidence, rows: list[ForwardsRow]) -> InRow:
    return InRow(
        tuple(evidence.recording.site(number) for number in rows[0].lines),
        rows[0].module,
        max(row.elements for row in rows),
        statistics.median(row.us / (row.step_us or math.inf) for row in rows),
        len({row.step for row in rows}),
    )


# -- separate calls --------------------------------------------------------------------------------
# Calls of one callable that stand together and need nothing of one another's results.


def separate_calls(source: Source, sites: Sequence[Site]) -> bool:
    """True if these lines, one for each call, are statements of one block, one behind the other,
    that assign names, of which none reads what an earlier one of them assigned; and each call is
    written out, with nothing but names for arguments.
    """
    if not sites or len({site.file for site in sites}) != 1:
        return False
    lines = {site.line for site in sites}
    return any(
        _together(statements, len(sites))
        for statements in _statements(source, sites[0].file, lines)
    )


def _statements(source: Source, file: str, lines: set[int]) -> Iterator[list[ast.stmt]]:
    """From the first of the lines to the last, of each block that has them all."""
    first, last = min(lines), max(lines)
    for node in source.nodes(file):
        for block in blocks_of(node):
            within = [each for each in block if set(lines_of(each)) & set(range(first, last + 1))]
            covered = {line for each in within for line in lines_of(each)}
            if lines <= covered:
                yield within


def _together(statements: list[ast.stmt], calls: int) -> bool:
    assigned: set[str] = set()
    for each in statements:
        if not isinstance(each, (ast.Assign, ast.AnnAssign)) or _nested(each):
            return False
        if assigned & names_in(each, ast.Load):
            return False
        assigned |= names_in(each, ast.Store)
    plain = (call for call in nodes_in(statements, ast.Call) if _plain(call))
    return calls in Counter(unparsed(call.func) for call in plain).values()


def _nested(statement: ast.stmt) -> bool:
    """Something in it runs any number of times, or later."""
    later = (ast.Lambda, ast.comprehension, ast.IfExp, ast.NamedExpr, ast.Await)
    return any(isinstance(node, later) for node in nodes_in(statement, ast.AST))


def _plain(call: ast.Call) -> bool:
    """Its arguments are names, or attributes and items of names."""
    inside = nodes_in(call.args, ast.Call, ast.Starred)
    return bool(call.args) and not call.keywords and not any(inside)
