"""Handlers of out-of-memory errors around the backward calls of the step, and what is wrong with
them.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, parsed
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .oom_handlers_source import Guard, Retry, functions, guards
from .rows import EnclosingRow

Reason = Literal[
    "swallows",
    "hides",
    "died",
    "same_graph",
    "not_cleared",
    "unchanged",
    "in_vain",
    "inside",
    "kept",
    "forgotten",
    "stepped",
]

WHOLE = frozenset({"<module>", "main", "run", "train", "fit", "launch", "cli", "worker"})
"""Functions whose ``try``, outside a loop, is around the whole training: it ends there."""

FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in ', re.MULTILINE)
"""A frame of a traceback, as Python prints it."""


@dataclass(frozen=True)
class Flaw:
    """One line of a handler, or of what it leads to, and the reasons why it does harm. ``others``:
    lines that belong to it.
    """

    site: Site
    handler: Site
    reasons: tuple[Reason, ...]
    others: tuple[Site, ...] = ()


@dataclass(frozen=True)
class OomHandlers(Table):
    """Handlers that guard a backward which the audited step ran, or that the error passed which
    ended it. ``errors`` counts those that the program caught meanwhile.
    """

    parts: ClassVar[tuple[str, ...]] = ("enclosing", "steps", "calls")

    flaws: tuple[Flaw, ...] = ()
    handlers: int = 0
    errors: int = 0
    calls: DeviceCalls | None = None
    """What empties the cache; None of a run that died before that was recorded."""

    @classmethod
    def without_parts(cls, evidence: Evidence) -> OomHandlers | None:
        """The handlers that the error passed which ended the run, if it died of one."""
        found, flaws = _judged(evidence, {}, _traceback(evidence))
        return cls(flaws, found, 2) if any("died" in each.reasons for each in flaws) else None

    @classmethod
    def build(cls, evidence: Evidence) -> OomHandlers:
        """From the lines around the loud pass's backward calls, the traceback of the error that
        ended the run, and the recorded source.
        """
        lines: dict[str, set[int]] = defaultdict(set)
        for row in rows_of(evidence, EnclosingRow):
            for site in map(evidence.recording.site, row.lines):
                lines[site.file].add(site.line)
        found, flaws = _judged(evidence, lines, _traceback(evidence))
        steps = evidence.get(Steps)
        caught = max((step.ooms for step in (*steps.quiet, *steps.loud)), default=0)
        return cls(flaws, found, caught, evidence.get(DeviceCalls))


def _judged(
    evidence: Evidence, ran: Mapping[str, set[int]], ended: list[tuple[str, int]]
) -> tuple[int, tuple[Flaw, ...]]:
    """How many handlers guard these lines, and what is wrong with them."""
    lines = defaultdict(set, {file: set(numbers) for file, numbers in ran.items()})
    for file, line in ended:
        lines[file].add(line)
    texts = evidence.get(Source).texts
    trees = {file: tree for file, text in texts.items() if (tree := parsed(text)) is not None}
    named = functions(trees.values())
    found = [
        (file, guard)
        for file in lines
        if file in trees
        for guard in guards(trees[file], lines[file], named, texts[file])
    ]
    flaws = tuple(flaw for file, guard in found for flaw in _flaws(evidence, file, guard, ended))
    return sum(not guard.anything for _, guard in found), flaws


def _traceback(evidence: Evidence) -> list[tuple[str, int]]:
    """Files, as sites name them, and lines of the error that ended the run, and of those that it
    came from.
    """
    error = evidence.recording.manifest.get("error") or {}
    if evidence.recording.manifest.get("outcome") != "oom":
        return []
    return [
        (evidence.recording.relative(frame["file"]), int(frame["line"]))
        for frame in FRAME.finditer(error.get("traceback") or "")
    ]


def _flaws(
    evidence: Evidence, file: str, guard: Guard, ended: list[tuple[str, int]]
) -> Iterator[Flaw]:
    function = guard.scope.name if not isinstance(guard.scope, ast.Module) else "<module>"

    def site(node: ast.stmt | ast.expr | ast.ExceptHandler) -> Site:
        return evidence.recording.site_at(file, node.lineno, function)

    handler = site(guard.handler)
    if guard.anything:
        if guard.swallows and (guard.loop is not None or function not in WHOLE):
            yield Flaw(handler, handler, ("hides",))
        return
    at_handler: list[Reason] = ["swallows"] if guard.swallows else []
    died = any(each == file and guard.died_at(line) for each, line in ended)
    for retry in guard.retries:
        ended_it: tuple[Reason, ...] = ("died",) if died and retry.inside else ()
        reasons = (*ended_it, *_reasons(retry))
        if retry.node is guard.handler:
            at_handler += reasons
        elif reasons:
            looped = retry.unchanged or retry.in_vain
            yield Flaw(site(retry.node), handler, reasons, (handler,) if looped else ())
    if guard.kept is not None:
        yield Flaw(site(guard.kept), handler, ("kept",))
    if guard.steps_anyway:
        at_handler.append("stepped")
    elif guard.forgets_gradients:
        at_handler.append("forgotten")
    if at_handler:
        yield Flaw(handler, handler, tuple(at_handler))


def _reasons(retry: Retry) -> Iterator[Reason]:
    if retry.same_graph:
        yield "same_graph"
    elif retry.inside:
        yield "inside"
    if not retry.cleared:
        yield "not_cleared"
    if retry.unchanged:
        yield "unchanged"
    if retry.in_vain:
        yield "in_vain"
