"""Handlers of out-of-memory errors as the source has them, and what they try again."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from auditor.evidence.source.files import Function, lines_of, name_of, unparsed
from auditor.syntax.index import Index, Nodes, called_in, grouped, nodes_in

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
