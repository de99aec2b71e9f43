"""MEM011: an out-of-memory error is caught, and what follows cannot work."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Function, Source, lines_of, name_of, unparsed
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import Index, Nodes, called_in, grouped, nodes_in

from ..pricing import between
from .rows import EnclosingRow

WHY = {
    "died": "the second try ran out of memory as well, which ended this run",
    "same_graph": "backward runs again on the graph of the try that failed, "
    "whose buffers may be freed already (a second error), "
    "and adds what had come through before the error twice",
    "inside": "the retry runs inside except, where the exception still "
    "holds the frames of the failed try with their tensors",
    "kept": "the exception is stored, and its traceback keeps the tensors of the failed try alive",
}

STORED = Remedy("Store str(error), not the error.")
PERIODIC = Remedy(
    "Drop it, or keep it where other programs share the device and need the memory in between."
)


@dataclass(frozen=True)
class OutOfMemoryHandledWrongly(Rule):
    """A handler of out-of-memory errors cannot work."""

    code = "MEM011"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True
    advice = (
        "In except only set a flag. After the block: zero_grad(), then a fresh forward and "
        "backward, with a smaller batch in "
        "several parts; on the second failure save a checkpoint and stop."
    )

    often: int = knob(
        3, "Calls of empty_cache() at one constant distance before they are called periodic."
    )
    share: float = knob(0.5, "Share of the steps from which they are SYNC009's.")

    def detect(self, handlers: OomHandlers, machine: Machine) -> Iterator[Finding]:
        yield from self._flawed(handlers)
        if machine.gpu_path and handlers.calls is not None:  # without a device it does nothing
            yield from self._periodic(handlers.calls, machine)

    def _flawed(self, handlers: OomHandlers) -> Iterator[Finding]:
        times = amounts.count(handlers.errors, "time")
        ran = f"; memory ran out {times} in this audit" if handlers.errors else ""
        for flaw in handlers.flaws:
            yield Finding(
                flaw.site,
                f"after an out-of-memory error {'; and '.join(WHY[r] for r in flaw.reasons)}{ran}",
                seen_on=None if handlers.errors else "source",
                facts=(
                    ("handler", str(flaw.handler)),
                    ("out of memory in this audit", str(handlers.errors)),
                ),
                remedy=STORED if flaw.reasons == ("kept",) else None,
            )

    def _periodic(self, calls: DeviceCalls, machine: Machine) -> Iterator[Finding]:
        for site in calls.sites(("empty_cache",)):
            seen = site.pattern
            if len(seen.seen) < self.often or seen.interval is None or seen.usual(self.share):
                continue
            price = (
                f"{amounts.duration(site.us_per_step)} per step inside the call"
                if machine.cuda
                else "rehearsed, so not priced"
            )
            found = Finding(
                site.site,
                f"empty_cache() every {seen.interval} steps prevents no out-of-memory error: "
                f"before torch raises one it gives its cache back without the call ({price})",
                steps=len(seen.seen),
                per_step=site.per_step,
                lost_us_per_step=site.us_per_step if machine.cuda else None,
                basis="measured" if machine.cuda else "none",
                severity=Severity.NOTE,
                facts=site.facts,
                remedy=PERIODIC,
            )
            yield between(found, site.price) if machine.cuda else found


# -- oom handlers ----------------------------------------------------------------------------------
# Handlers of out-of-memory errors around the backward calls of the step, and what is wrong with
# them.


Reason = Literal["died", "same_graph", "inside", "kept"]

FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in ', re.MULTILINE)
"""A frame of a traceback, as Python prints it."""


@dataclass(frozen=True)
class Flaw:
    """One line of a handler, or of what it leads to, and the reasons why it does harm."""

    site: Site
    handler: Site
    reasons: tuple[Reason, ...]


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
    source = evidence.get(Source)
    named = functions(map(source.index, source.texts))
    found = [
        (file, guard)
        for file in lines
        if file in source.texts
        for guard in guards(source.index(file), lines[file], named)
    ]
    flaws = tuple(flaw for file, guard in found for flaw in _flaws(evidence, file, guard, ended))
    return len(found), flaws


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
    died = any(each == file and guard.died_at(line) for each, line in ended)
    for retry in guard.retries:
        reasons: list[Reason] = ["died"] if died and retry.inside else []
        if retry.same_graph:
            reasons.append("same_graph")
        elif retry.inside:
            reasons.append("inside")
        if reasons:
            yield Flaw(site(retry.node), handler, tuple(reasons))
    if guard.kept is not None:
        yield Flaw(site(guard.kept), handler, ("kept",))


# -- handlers in the source ------------------------------------------------------------------------
# Handlers of out-of-memory errors as the source has them, and what they try again.

BACKWARD = frozenset({"backward", "manual_backward"})
KEEPS = frozenset({"append", "appendleft", "add", "put", "extend", "setdefault"})
LETS_GO = frozenset({"with_traceback", "clear_frames"})


@dataclass(frozen=True)
class Retry:
    """What the handler does again: a backward, or a call of what failed. ``inside``: while the
    exception is still alive.
    """

    node: ast.Call
    inside: bool
    same_graph: bool


@dataclass(frozen=True)
class Guard:
    """One handler for memory that ran out. The audited step ran a backward under these ``lines`` of
    its try or of itself.
    """

    scope: Function | ast.Module
    tried: ast.Try
    handler: ast.ExceptHandler
    lines: tuple[int, ...]
    following: tuple[ast.stmt, ...]
    definitions: dict[str, Function]
    """Functions of all recorded files by name; a name that several have is left out."""

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The handler's statements that run when memory ran out, without the branches for other
        errors.
        """
        return list(_when_out_of_memory(self.handler.body)) or self.handler.body

    @cached_property
    def retries(self) -> tuple[Retry, ...]:
        """The first thing tried again inside the handler, and in each branch after it that asks
        for what the handler assigned.
        """
        inside = self._retry(self.body, inside=True)
        after = [self._retry(branch, inside=False) for branch in self._branches()]
        return tuple(retry for retry in (inside, *after) if retry is not None)

    @property
    def kept(self) -> ast.stmt | None:
        """The statement that stores the exception itself, with its traceback."""
        if self.handler.name is None or LETS_GO & called_in(self.body):
            return None
        if f"{self.handler.name}.__traceback__" in _named(self.body, ast.Store):
            return None
        return next(
            (each for each in nodes_in(self.body, ast.stmt) if _stores(each, self.handler.name)),
            None,
        )

    def died_at(self, line: int) -> bool:
        """The second error came up at this line, which tries again inside the handler."""
        return any(
            retry.inside and retry.node.lineno <= line for retry in self.retries
        ) and _covers(self.handler.body, line)

    def _branches(self) -> Iterator[list[ast.stmt]]:
        assigned = _named(self.body, ast.Store)
        for statement in self.following:
            if isinstance(statement, ast.If | ast.While) and assigned & _named(statement.test):
                yield statement.body
                yield statement.orelse

    def _retry(self, region: list[ast.stmt], *, inside: bool) -> Retry | None:
        again = self._calls_tried
        calls = [
            node
            for node in nodes_in(region, ast.Call)
            if name_of(node.func) in BACKWARD
            or unparsed(node.func) in again
            or self._tries(node.func, again)
        ]
        if not calls:
            return None
        first = min(calls, key=lambda node: (node.lineno, node.col_offset))
        before = [
            node
            for node in nodes_in(self.scope, ast.AST)
            if self.handler.lineno <= getattr(node, "lineno", 0) <= first.lineno
        ]
        backward = name_of(first.func) in BACKWARD
        return Retry(first, inside, backward and _old_graph(first, before))

    def _tries(self, called: ast.expr, again: Collection[str]) -> bool:
        """A function of the program's that runs a backward, or calls what was tried: by its bare
        name, or one of the object's own methods.
        """
        own = isinstance(called, ast.Attribute) and unparsed(called.value) == "self"
        function = self.definitions.get(name_of(called))
        return (
            (own or isinstance(called, ast.Name))
            and function is not None
            and any(
                name_of(node.func) in BACKWARD or unparsed(node.func) in again
                for node in nodes_in(function, ast.Call)
            )
        )

    @cached_property
    def _calls_tried(self) -> frozenset[str]:
        """What the tried statements called, where the backward itself ran further inside."""
        calls = [
            node
            for node in nodes_in(self.tried, ast.Call)
            if any(_covers([node], n) for n in self.lines)
        ]
        if BACKWARD.intersection(name_of(node.func) for node in calls):
            return frozenset()
        tried = frozenset(unparsed(node.func) for node in nodes_in(self.tried.body, ast.Call))
        return frozenset(unparsed(node.func) for node in calls) & tried


def guards(index: Index, lines: Iterable[int], definitions: dict[str, Function]) -> Iterator[Guard]:
    """Handlers around any of these lines that are meant for memory."""
    wanted = sorted(set(lines))
    around = [
        node
        for node in (index.of(ast.Try) if wanted else ())
        if any(line in lines_of(node) for line in wanted)
    ]
    for tried in around:
        handler = next(filter(_catches, tried.handlers), None)
        if handler is None:
            continue
        ran = tuple(n for n in wanted if _covers([*tried.body, *handler.body], n))
        if ran:
            following = _following(tried, index.parents[tried])
            yield Guard(index.scope_of(tried), tried, handler, ran, following, definitions)


def functions(indices: Iterable[Index]) -> dict[str, Function]:
    """All functions by name, without names that several have."""
    named = grouped((node.name, node) for index in indices for node in index.functions)
    return {name: nodes[0] for name, nodes in named.items() if len(nodes) == 1}


def _named(outer: Nodes, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Variables, and attributes as they are written (``self.failed``); ``context``: those that are
    read or given a value.
    """
    named = nodes_in(outer, ast.Name, ast.Attribute)
    return {unparsed(node) for node in named if isinstance(node.ctx, context)}


def _covers(nodes: Iterable[ast.stmt | ast.expr], line: int) -> bool:
    return any(line in lines_of(node) for node in nodes)


def _catches(handler: ast.ExceptHandler) -> bool:
    named = handler.type is not None and _speaks_of_memory([handler.type])
    return named or _speaks_of_memory(handler.body)


def _speaks_of_memory(nodes: Sequence[ast.AST]) -> bool:
    """Names the error's class, or asks for its text."""
    if "OutOfMemoryError" in {name_of(node) for node in nodes_in(nodes, ast.expr)}:
        return True
    texts = (node.value for node in nodes_in(nodes, ast.Constant))
    return any(
        isinstance(text, str) and "out of memory" in text.lower() and len(text) < 30
        for text in texts
    )


def _following(tried: ast.stmt, outer: ast.AST) -> tuple[ast.stmt, ...]:
    for _, block in ast.iter_fields(outer):
        if isinstance(block, list) and tried in block:
            return tuple(block[block.index(tried) + 1 :])
    return ()


def _when_out_of_memory(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        branch = _branch(statement) if isinstance(statement, ast.If) else None
        yield from [statement] if branch is None else branch
        if branch is not None and _ends(branch):
            return


def _ends(body: list[ast.stmt]) -> bool:
    """Nothing behind these statements runs after them."""
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _ends(last.body) and _ends(last.orelse)
    return isinstance(last, ast.Return | ast.Continue | ast.Break | ast.Raise)


def _branch(asked: ast.If) -> list[ast.stmt] | None:
    """The branch taken when memory ran out, of a test for its text or its class; None where it asks
    something else.
    """
    test, negated = asked.test, False
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, negated = test.operand, True
    if not _speaks_of_memory([test]):
        return None
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotIn):
        negated = not negated
    return asked.orelse if negated else asked.body


def _old_graph(backward: ast.Call, before: list[ast.AST]) -> bool:
    """The backward starts from a value that nothing computed anew since the error."""
    roots = [backward.func.value] if isinstance(backward.func, ast.Attribute) else []
    roots += backward.args
    forward = called_in(roots) - {"scale"}
    return not forward and not _named(roots) & _named(before, ast.Store)


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
