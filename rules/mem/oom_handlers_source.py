"""Handlers of out-of-memory errors as the source has them: what they try again, and in what state
they leave the gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from auditor.evidence.source.files import Function, Index, lines_of, name_of, unparsed
from auditor.syntax.index import Loop, called_in, nodes_in

from .broad_handlers import goes_on, is_broad, means_memory, shrinks, swallows
from .gradient_statements import (
    assigned,
    clearings,
    clears,
    ends,
    leaves,
    names,
    stepped_behind,
    steps,
)
from .oom_answers import answers, attempts_in_vain, repeats_unchanged

BACKWARD = frozenset({"backward", "manual_backward"})
KEEPS = frozenset({"append", "appendleft", "add", "put", "extend", "setdefault"})
LETS_GO = frozenset({"with_traceback", "clear_frames"})


@dataclass(frozen=True)
class Retry:
    """What the handler does again: a backward, or a call of what failed. ``inside``: while the
    exception is still alive. ``unchanged``: for ever the same; ``in_vain``: the same a few times.

    ``node`` is what has to change: the second backward or call, the loop that has no end, or the
    handler that leaves the gradients as they are.
    """

    node: ast.Call | ast.ExceptHandler | Loop
    inside: bool
    same_graph: bool
    cleared: bool
    unchanged: bool = False
    in_vain: bool = False


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
    loop: Loop | None = None
    """The innermost loop around the try, in the same function."""
    answers: tuple[list[ast.stmt], ...] = ()
    """Branches that run because the handler ran."""
    anything: bool = False
    """It is not meant for memory: it catches every error, for whatever reason."""
    behind: tuple[ast.stmt, ...] = ()
    """Statements behind the loop."""

    @cached_property
    def body(self) -> list[ast.stmt]:
        """The handler's statements that run when memory ran out, without the branches for other
        errors.
        """
        return list(_when_out_of_memory(self.handler.body)) or self.handler.body

    @cached_property
    def retries(self) -> tuple[Retry, ...]:
        """The first thing tried again inside the handler, in each branch after it that the handler
        decides, and by a loop.
        """
        inside = self._retry(self.body, inside=True)
        after = [self._retry(branch, inside=False) for branch in self._branches()]
        found = tuple(retry for retry in (inside, *after) if retry is not None)
        again = None if found or self.loop is None else self._by_loop(self.loop)
        return found if again is None else (again,)

    @property
    def kept(self) -> ast.stmt | None:
        """The statement that stores the exception itself, with its traceback."""
        if self.handler.name is None or LETS_GO & called_in(self.body):
            return None
        if f"{self.handler.name}.__traceback__" in assigned(self.body):
            return None
        return next(
            (each for each in nodes_in(self.body, ast.stmt) if _stores(each, self.handler.name)),
            None,
        )

    @property
    def swallows(self) -> bool:
        """Every error of the step ends in it."""
        if self.loop is None and self._trains_inside():
            return False
        return swallows(self.handler, self.definitions) and all(map(goes_on, self.answers))

    def _trains_inside(self) -> bool:
        """The loop over the batches is inside the try: the training ends with it."""
        loops = nodes_in(self.tried.body, ast.For, ast.While)
        return any(map(steps, nodes_in(loops, ast.Call)))

    def died_at(self, line: int) -> bool:
        """The second error came up at this line, which tries again inside the handler."""
        return any(
            retry.inside and retry.node.lineno <= line for retry in self.retries
        ) and _covers(self.handler.body, line)

    @property
    def forgets_gradients(self) -> bool:
        """The error skips the only clearing of gradients in this function, and the training goes
        on.
        """
        if self.retries or leaves(self.body) or self._clears_in(self.body):
            return False
        cleared = list(clearings([self.scope]))
        skipped = [line for line in cleared if self._is_skipped(line)]
        return bool(skipped) and len(skipped) == len(cleared)

    @property
    def steps_anyway(self) -> bool:
        """An optimizer steps behind the handler, with what the failed backward left."""
        if self.retries or leaves(self.body) or self._clears_in(self.body):
            return False
        return self._steps_behind_the_loop() or (
            not ends(self.body) and self._steps_behind_the_try()
        )

    def _steps_behind_the_loop(self) -> bool:
        if self.loop is None:
            return False
        answered = [each for branch in self.answers for each in branch]
        if self._clears_in([*answered, *self.loop.body]):
            return False
        skipped = [*self.body, *answered]
        return stepped_behind(self.loop, self.behind, skipped, assigned(self.body))

    def _steps_behind_the_try(self) -> bool:
        told = assigned(self.body)
        for statement in self.following:
            if isinstance(statement, ast.If | ast.While) and told & names(statement.test):
                return False
            if self._clears_in([statement]):
                return False
            if any(map(steps, nodes_in(statement, ast.Call))):
                return True
        return False

    def _is_skipped(self, line: int) -> bool:
        failed = next(
            (n for n in self.lines if _covers(self.tried.body, n)), self.tried.body[0].lineno
        )
        return _covers(
            [each for each in self.tried.body if each.lineno > failed] + self.tried.orelse, line
        )

    def _branches(self) -> Iterator[list[ast.stmt]]:
        told = assigned(self.body)
        for statement in self.following:
            if isinstance(statement, ast.If | ast.While) and told & names(statement.test):
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
        cleared = any(clears(node) for node in before) or (
            not backward and self._clears_itself(name_of(first.func))
        )
        return Retry(first, inside, backward and _old_graph(first, before), cleared)

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

    def _by_loop(self, loop: Loop) -> Retry | None:
        """The loop around the try runs it again until it succeeds."""
        tried = [
            node
            for node in nodes_in(self.tried.body, ast.Call)
            if any(_covers([node], n) for n in self.lines)
        ]
        if not tried or leaves(self.body) or not self._succeeds_out_of(loop):
            return None
        backward = next((node for node in tried if name_of(node.func) in BACKWARD), None)
        cleared = self._clears_in(loop.body)
        if backward is None:
            given = {
                node for call in tried for node in nodes_in(call, ast.Call) if node is not call
            }
            cleared = cleared or any(
                self._clears_itself(name_of(node.func)) for node in tried if node not in given
            )
        if backward is not None and _old_graph(backward, nodes_in(loop.body, ast.AST)):
            return Retry(backward, False, same_graph=True, cleared=cleared)
        if repeats_unchanged(loop, self.tried, self.handler):
            return Retry(loop, False, same_graph=False, cleared=cleared, unchanged=True)
        if attempts_in_vain(self.scope, loop, self.tried, self.handler):
            return Retry(tried[0], False, same_graph=False, cleared=cleared, in_vain=True)
        return Retry(self.handler, False, same_graph=False, cleared=cleared)

    def _succeeds_out_of(self, loop: Loop) -> bool:
        """What the try comes to without an error ends the loop, which so repeats one thing and is
        no loop over batches.
        """
        last = (self.tried.orelse or self.tried.body)[-1]
        if isinstance(last, ast.Break | ast.Return):
            return True
        if (
            self.following
            and isinstance(self.following[-1], ast.Break | ast.Return)
            and isinstance(self.body[-1], ast.Continue)
        ):
            return True
        asked = loop.test if isinstance(loop, ast.While) else None
        flag = (
            asked.operand
            if isinstance(asked, ast.UnaryOp) and isinstance(asked.op, ast.Not)
            else asked
        )
        done = [*self.tried.body, *self.tried.orelse]
        return isinstance(flag, ast.Name | ast.Attribute) and unparsed(flag) in assigned(done)

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

    def _clears_in(self, body: Iterable[ast.stmt]) -> bool:
        """True also where a function of the program that is called here clears them (an
        optimizer's ``step()`` is none, though the program may have a function of that name).
        """
        nodes = list(body)
        called = (
            self.definitions.get(name_of(call.func))
            for call in nodes_in(nodes, ast.Call)
            if not steps(call)
        )
        return any(clearings([*nodes, *(function for function in called if function is not None)]))

    def _clears_itself(self, name: str) -> bool:
        """True also where the function is not known."""
        function = self.definitions.get(name)
        return function is None or any(clearings([function]))


def guards(
    index: Index, lines: Iterable[int], definitions: dict[str, Function], text: str = ""
) -> Iterator[Guard]:
    """Handlers around any of these lines that are meant for memory, or else the first that catches
    everything. ``text``: of the file, with its comments.
    """
    wanted = sorted(set(lines))
    around = [node for node in index.of(ast.Try) if any(line in lines_of(node) for line in wanted)]
    for tried in around:
        scope, following = index.scope_of(tried), _following(tried, index)
        told = {each: tuple(answers(index, scope, each, following)) for each in tried.handlers}
        meant = [
            each
            for each in tried.handlers
            if _catches(each, text) or (is_broad(each) and any(map(shrinks, told[each])))
        ]
        handler = next(iter(meant or filter(is_broad, tried.handlers)), None)
        ran = tuple(
            n for n in wanted if handler is not None and _covers([*tried.body, *handler.body], n)
        )
        if handler is not None and ran:
            loop = index.loop_of(tried)
            behind = () if loop is None else _following(loop, index)
            beside = following, definitions, loop, told[handler]
            yield Guard(scope, tried, handler, ran, *beside, not meant, behind)


def _covers(nodes: Iterable[ast.stmt | ast.expr], line: int) -> bool:
    return any(line in lines_of(node) for node in nodes)


def functions(indices: Iterable[Index]) -> dict[str, Function]:
    """All functions by name, without names that several have."""
    found: dict[str, Function | None] = {}
    for index in indices:
        for node in index.functions:
            found[node.name] = None if node.name in found else node
    return {name: node for name, node in found.items() if node is not None}


def _catches(handler: ast.ExceptHandler, text: str) -> bool:
    named = handler.type is not None and _speaks_of_memory([handler.type])
    meant = is_broad(handler) and means_memory(handler, text)
    return named or meant or _speaks_of_memory(handler.body)


def _speaks_of_memory(nodes: Sequence[ast.AST]) -> bool:
    """Names the error's class, or asks for its text."""
    if "OutOfMemoryError" in {name_of(node) for node in nodes_in(nodes, ast.expr)}:
        return True
    texts = (node.value for node in nodes_in(nodes, ast.Constant))
    return any(
        isinstance(text, str) and "out of memory" in text.lower() and len(text) < 30
        for text in texts
    )


def _following(tried: ast.stmt, index: Index) -> tuple[ast.stmt, ...]:
    for _, block in ast.iter_fields(index.parents[tried]):
        if isinstance(block, list) and tried in block:
            return tuple(block[block.index(tried) + 1 :])
    return ()


def _when_out_of_memory(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        branch = _branch(statement) if isinstance(statement, ast.If) else None
        yield from [statement] if branch is None else branch
        if branch is not None and ends(branch):
            return


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


def _old_graph(backward: ast.Call, before: Iterable[ast.AST]) -> bool:
    """The backward starts from a value that nothing computed anew since the error."""
    roots = [backward.func.value] if isinstance(backward.func, ast.Attribute) else []
    roots += backward.args
    return called_in(roots) <= {"scale"} and not set().union(*map(names, roots), set()) & assigned(
        before
    )


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
