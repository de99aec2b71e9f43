"""MEM011: an out-of-memory error is caught, and what follows cannot work."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from auditor import amounts
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Function, Source, lines_of, name_of, unparsed
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule
from auditor.syntax.index import Index, Nodes, called_in, grouped, nodes_in

from .rows import EnclosingRow

WHY = {
    "same_graph": "backward runs again on the graph of the failed attempt: it raises if buffers "
    "were freed already, and otherwise adds some gradients twice",
    "inside": "the retry runs inside the except block, where the exception still "
    "holds the failed attempt's frames and their tensors",
    "kept": "the exception is stored, and its traceback keeps the failed attempt's tensors alive",
}

STORED = Remedy("Store str(error) instead of the exception.")


class OutOfMemoryHandledWrongly(Rule):
    """The handler of an out-of-memory error cannot work."""

    code = "MEM011"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True
    advice = (
        "In the except block only set a flag. After it: zero_grad(), then a new forward and backward "
        "on smaller parts of the batch. If that fails too, save a checkpoint and stop."
    )

    def detect(self, handlers: OomHandlers) -> Iterator[Finding]:
        times = amounts.count(handlers.errors, "time")
        ran = f"; memory ran out {times} in this audit" if handlers.errors else ""
        for flaw in handlers.flaws:
            yield Finding(
                flaw.site,
                f"after an out-of-memory error {WHY[flaw.reason]}{ran}",
                seen_on=None if handlers.errors else "source",
                facts=(("handler", str(flaw.handler)),),
                remedy=STORED if flaw.reason == "kept" else None,
            )


# -- oom handlers ----------------------------------------------------------------------------------
# Handlers of out-of-memory errors around the backward calls of the step, and what is wrong with
# them.


FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in ', re.MULTILINE)
"""A frame of a traceback, as Python prints it."""


@dataclass(frozen=True)
class Flaw:
    """One line of a handler, or of what it leads to, and why it does harm: a key of ``WHY``."""

    site: Site
    handler: Site
    reason: str


@dataclass(frozen=True)
class OomHandlers(Table):
    """Flaws of handlers that guard a backward which the audited step ran, or that the error passed
    which ended it. ``errors`` counts those that the program caught meanwhile.
    """

    parts: ClassVar[tuple[str, ...]] = ("enclosing", "steps")

    flaws: tuple[Flaw, ...] = ()
    errors: int = 0

    @classmethod
    def without_parts(cls, evidence: Evidence) -> OomHandlers | None:
        """Those of the handlers that the error passed which ended the run."""
        flaws = _flaws(evidence, _traceback(evidence))
        return cls(flaws, 1) if flaws else None

    @classmethod
    def build(cls, evidence: Evidence) -> OomHandlers:
        ran = [
            (site.file, site.line)
            for row in rows_of(evidence, EnclosingRow)
            for site in map(evidence.recording.site, row.lines)
        ]
        steps = evidence.get(Steps)
        caught = max((step.ooms for step in (*steps.quiet, *steps.loud)), default=0)
        flaws = _flaws(evidence, [*ran, *_traceback(evidence)])
        return cls(flaws, caught)


def _traceback(evidence: Evidence) -> list[tuple[str, int]]:
    """Files and lines of the out-of-memory error that ended the run, and of its causes."""
    if evidence.recording.manifest.get("outcome") != "oom":
        return []
    error = evidence.recording.manifest.get("error") or {}
    return [
        (evidence.recording.relative(frame["file"]), int(frame["line"]))
        for frame in FRAME.finditer(error.get("traceback") or "")
    ]


def _flaws(evidence: Evidence, ran: Iterable[tuple[str, int]]) -> tuple[Flaw, ...]:
    """What is wrong with the handlers around these lines."""
    source, lines = evidence.get(Source), defaultdict[str, set[int]](set)
    for file, line in ran:
        lines[file].add(line)
    named = functions(map(source.index, source.texts))
    found = []
    for file in lines.keys() & source.texts.keys():
        for flaw in flaws_in(source.index(file), lines[file], named):
            name = "<module>" if isinstance(flaw.scope, ast.Module) else flaw.scope.name
            site, handler = (
                evidence.recording.site_at(file, node.lineno, name)
                for node in (flaw.node, flaw.handler)
            )
            found.append(Flaw(site, handler, flaw.reason))
    return tuple(sorted(found, key=lambda flaw: (flaw.site.file, flaw.site.line)))


# -- handlers in the source ------------------------------------------------------------------------
# Handlers of out-of-memory errors as the source has them, and what they try again.

BACKWARD = frozenset({"backward", "manual_backward"})
KEEPS = frozenset({"append", "appendleft", "add", "put", "extend", "setdefault"})
LETS_GO = frozenset({"with_traceback", "clear_frames"})


class Harm(NamedTuple):
    """A statement or call that does harm, in which handler and function, and why."""

    node: ast.stmt | ast.Call
    handler: ast.ExceptHandler
    scope: Function | ast.Module
    reason: str


def functions(indices: Iterable[Index]) -> dict[str, Function]:
    """All functions by name, without names that several have."""
    named = grouped((node.name, node) for index in indices for node in index.functions)
    return {name: nodes[0] for name, nodes in named.items() if len(nodes) == 1}


def flaws_in(index: Index, lines: Collection[int], named: dict[str, Function]) -> Iterator[Harm]:
    """What is wrong with the handlers for memory around these lines, at which a backward ran."""
    for tried in index.of(ast.Try) if lines else ():
        handler = next(filter(_catches, tried.handlers), None)
        ran = [n for n in lines if _covers([*tried.body, *(handler.body if handler else ())], n)]
        if handler is None or not ran:
            continue
        scope, again = index.scope_of(tried), _calls_tried(tried, ran)
        assigned = _named(handler.body, ast.Store)
        regions = [("inside", handler.body)]
        for each in _following(tried, index.parents[tried]):
            if isinstance(each, ast.If | ast.While) and assigned & _named(each.test):
                regions += [("", each.body), ("", each.orelse)]
        for reason, region in regions:
            retry = _retry(region, again, named)
            old = retry is not None and _old_graph(retry, scope, handler)
            if retry is not None and (old or reason):
                yield Harm(retry, handler, scope, "same_graph" if old else reason)
        kept = _kept(handler)
        if kept is not None:
            yield Harm(kept, handler, scope, "kept")


def _catches(handler: ast.ExceptHandler) -> bool:
    """It names the error's class, or asks for its text."""
    if handler.type is not None and "OutOfMemoryError" in _last_names([handler.type]):
        return True
    texts = (node.value for node in nodes_in(handler.body, ast.Constant))
    return "OutOfMemoryError" in _last_names(handler.body) or any(
        isinstance(text, str) and "out of memory" in text.lower() and len(text) < 30
        for text in texts
    )


def _last_names(nodes: Nodes) -> set[str]:
    return {name_of(node) for node in nodes_in(nodes, ast.expr)}


def _calls_tried(tried: ast.Try, ran: Iterable[int]) -> frozenset[str]:
    """What the tried statements called, where the backward itself ran further inside."""
    calls = [
        node for node in nodes_in(tried, ast.Call) if any(_covers([node], line) for line in ran)
    ]
    if BACKWARD.intersection(name_of(node.func) for node in calls):
        return frozenset()
    called = frozenset(unparsed(node.func) for node in nodes_in(tried.body, ast.Call))
    return frozenset(unparsed(node.func) for node in calls) & called


def _retry(
    region: list[ast.stmt], again: Collection[str], named: dict[str, Function]
) -> ast.Call | None:
    """The first call that tries again: a backward, what was tried, or one of the program's
    functions, by its bare name or one of the object's own methods, that does either.
    """

    def tries(call: ast.Call) -> bool:
        return name_of(call.func) in BACKWARD or unparsed(call.func) in again

    def leads_there(called: ast.expr) -> bool:
        own = isinstance(called, ast.Attribute) and unparsed(called.value) == "self"
        function = named.get(name_of(called)) if own or isinstance(called, ast.Name) else None
        return function is not None and any(map(tries, nodes_in(function, ast.Call)))

    calls = [node for node in nodes_in(region, ast.Call) if tries(node) or leads_there(node.func)]
    return min(calls, key=lambda node: (node.lineno, node.col_offset), default=None)


def _old_graph(retry: ast.Call, scope: ast.AST, handler: ast.ExceptHandler) -> bool:
    """A backward that starts from a value that was not recomputed since the error."""
    if name_of(retry.func) not in BACKWARD:
        return False
    roots = [retry.func.value] if isinstance(retry.func, ast.Attribute) else []
    roots += retry.args
    since = [
        node
        for node in nodes_in(scope, ast.AST)
        if handler.lineno <= getattr(node, "lineno", 0) <= retry.lineno
    ]
    return not (called_in(roots) - {"scale"}) and not _named(roots) & _named(since, ast.Store)


def _kept(handler: ast.ExceptHandler) -> ast.stmt | None:
    """The statement that stores the exception itself, with its traceback."""
    name = handler.name
    if name is None or LETS_GO & called_in(handler.body):
        return None
    if f"{name}.__traceback__" in _named(handler.body, ast.Store):
        return None
    return next((each for each in nodes_in(handler.body, ast.stmt) if _stores(each, name)), None)


def _following(tried: ast.stmt, outer: ast.AST) -> tuple[ast.stmt, ...]:
    for _, block in ast.iter_fields(outer):
        if isinstance(block, list) and tried in block:
            return tuple(block[block.index(tried) + 1 :])
    return ()


def _named(outer: Nodes, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    named = nodes_in(outer, ast.Name, ast.Attribute)
    return {unparsed(node) for node in named if isinstance(node.ctx, context)}


def _covers(nodes: Iterable[ast.stmt | ast.expr], line: int) -> bool:
    return any(line in lines_of(node) for node in nodes)


def _stores(statement: ast.stmt, name: str) -> bool:
    """``self.error = e``, ``errors.append((n, e))``: the exception itself, not its text."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return statement.value is not None and _contains(statement.value, name)
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or name_of(call.func) not in KEEPS:
        return False
    return any(_contains(given, name) for given in call.args)


def _contains(value: ast.expr, name: str) -> bool:
    """The name itself, or a tuple, list, set or dict with it."""
    if isinstance(value, ast.Tuple | ast.List | ast.Set):
        return any(_contains(each, name) for each in value.elts)
    if isinstance(value, ast.Dict):
        return any(_contains(each, name) for each in value.values)
    return isinstance(value, ast.Name) and value.id == name
