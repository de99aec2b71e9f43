"""Handlers of out-of-memory errors around the backward calls of the step, and what is wrong with
them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, parsed
from auditor.evidence.source.oom_handlers_source import Guard, Retry, functions, guards
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import EnclosingRow

Reason = Literal["same_graph", "not_cleared", "inside", "kept", "forgotten", "stepped"]


@dataclass(frozen=True)
class Flaw:
    """One line of a handler, and the reasons why it does harm."""

    site: Site
    handler: Site
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class OomHandlers(Table):
    """Handlers that guard a backward which the audited step ran. ``errors`` counts those that the
    program caught meanwhile.
    """

    parts: ClassVar[tuple[str, ...]] = ("enclosing", "steps")

    flaws: tuple[Flaw, ...] = ()
    handlers: int = 0
    errors: int = 0

    @classmethod
    def build(cls, evidence: Evidence) -> OomHandlers:
        """From the lines around the loud pass's backward calls and the recorded source."""
        lines: dict[str, set[int]] = defaultdict(set)
        for row in rows_of(evidence, EnclosingRow):
            for site in map(evidence.recording.site, row.lines):
                lines[site.file].add(site.line)
        texts = evidence.get(Source).texts
        trees = {file: tree for file, text in texts.items() if (tree := parsed(text)) is not None}
        named = functions(trees.values())
        found = [
            (file, guard)
            for file in lines
            if file in trees
            for guard in guards(trees[file], lines[file], named)
        ]
        flaws = tuple(flaw for file, guard in found for flaw in _flaws(evidence, file, guard))
        steps = evidence.get(Steps)
        caught = max((step.ooms for step in (*steps.quiet, *steps.loud)), default=0)
        return cls(flaws, len(found), caught)


def _flaws(evidence: Evidence, file: str, guard: Guard) -> Iterator[Flaw]:
    function = guard.scope.name if not isinstance(guard.scope, ast.Module) else "<module>"

    def site(node: ast.stmt | ast.expr | ast.ExceptHandler) -> Site:
        return evidence.recording.site_at(file, node.lineno, function)

    for retry in guard.retries:
        reasons = tuple(_reasons(retry))
        if reasons:
            yield Flaw(site(retry.node), site(guard.handler), reasons)
    if guard.kept is not None:
        yield Flaw(site(guard.kept), site(guard.handler), ("kept",))
    if guard.steps_anyway:
        yield Flaw(site(guard.handler), site(guard.handler), ("stepped",))
    elif guard.forgets_gradients:
        yield Flaw(site(guard.handler), site(guard.handler), ("forgotten",))


def _reasons(retry: Retry) -> Iterator[Reason]:
    if retry.same_graph:
        yield "same_graph"
    elif retry.inside:
        yield "inside"
    if not retry.cleared:
        yield "not_cleared"
