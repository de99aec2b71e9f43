"""What a program does with a handler's word that memory ran out: the branches that it decides, and
loops that try the same thing again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from auditor.evidence.source.files import Function, Index, name_of, unparsed
from auditor.syntax.index import Loop, called_in, names_in, nodes_in, run_in

FAILED = object()
"""The value of what a handler assigns where the source does not show whether it is true."""

HARMLESS = frozenset(
    """
    empty_cache ipc_collect collect synchronize reset_peak_memory_stats zero_grad sleep print log
    info debug warning warn error exception
    """.split()
)
"""Calls between two tries that leave what is tried as it was."""

WAITS = frozenset({"sleep", "wait", "collect"})
"""Calls between two tries after which memory may be free that was not."""

COUNTS = re.compile(r"oom|skip|fail|retr|tries|attempt|count|err|stat", re.IGNORECASE)
DRAWS = re.compile(
    r"next|sample|draw|fetch|batch|pop|load|rand|shuffle|choice|split|chunk", re.IGNORECASE
)
"""Names of calls that may bring another batch, or a smaller one, to the next try."""


def answers(
    index: Index,
    scope: Function | ast.Module,
    handler: ast.ExceptHandler,
    following: Iterable[ast.stmt],
) -> Iterator[list[ast.stmt]]:
    """Branches that run because the handler ran: behind it, and where its function is called."""
    told = dict(_told(handler))
    for statement in following:
        if isinstance(statement, ast.If | ast.While):
            for name, value in told.items():
                yield from _branch(statement, name, value)
    if isinstance(scope, Function) and not scope.name.startswith("__"):
        callers = dict.fromkeys(map(index.scope_of, index.calls.get(scope.name, ())))
        for function in callers:
            if function is not scope:
                yield from _of_caller(function, scope.name)


def repeats_unchanged(loop: Loop, tried: ast.Try, handler: ast.ExceptHandler) -> bool:
    """True of a loop without an end of its own that tries the same thing again: nothing between two
    tries changes it (or it only changes as far as a bound), ends the loop or takes another batch.
    """
    if not isinstance(loop, ast.While) or any(map(DRAWS.search, called_in(loop))):
        return False
    if not isinstance(loop.test, ast.Constant) and not _is_flag(loop.test, tried):
        return False
    if tried not in loop.body:
        return False
    at = loop.body.index(tried)
    skips = isinstance(handler.body[-1], ast.Continue)
    between = loop.body[:at] if skips else [*loop.body[:at], *loop.body[at + 1 :]]
    read = _read(tried)
    return all(_leaves_as_is(each, read) for each in [*handler.body, *between])


def attempts_in_vain(
    scope: Function | ast.Module,
    loop: Loop,
    tried: ast.Try,
    handler: ast.ExceptHandler,
) -> bool:
    """True of a loop over a ``range`` that makes the same attempt each time, and waits for nothing
    between two; the function does not try it in another way outside of the loop.
    """
    if not isinstance(loop, ast.For) or loop.orelse or not _is_range(loop.iter):
        return False
    called = called_in(loop)
    if called & WAITS or any(map(DRAWS.search, called)) or tried not in loop.body:
        return False
    attempted, within = called_in(tried.body), set(nodes_in(loop, ast.Call))
    others = (call for call in nodes_in(scope.body, ast.Call) if call not in within)
    if any(name_of(call.func) in attempted for call in others):
        return False
    read = _read(tried)
    if read & names_in(loop.target):
        return False
    between = [*handler.body, *(each for each in loop.body if each is not tried)]
    return all(_leaves_as_is(each, read) or _gives_up(each, read) for each in between)


def _is_range(over: ast.expr) -> bool:
    """``range(attempts)``; of two and more where the number is written there."""
    if not isinstance(over, ast.Call) or name_of(over.func) != "range":
        return False
    return not (len(over.args) == 1 and unparsed(over.args[0]) in ("0", "1"))


def _gives_up(statement: ast.stmt, read: set[str]) -> bool:
    """A test that raises, and before that changes nothing."""
    return (
        isinstance(statement, ast.If)
        and isinstance(statement.body[-1], ast.Raise)
        and all(_leaves_as_is(each, read) for each in [*statement.body[:-1], *statement.orelse])
    )


def _read(tried: ast.Try) -> set[str]:
    """Names, attributes and items that the try reads."""
    nodes = nodes_in(tried.body, ast.Name, ast.Attribute, ast.Subscript)
    return {unparsed(node) for node in nodes if isinstance(node.ctx, ast.Load)}


def _is_flag(test: ast.expr, tried: ast.Try) -> bool:
    """``while not done``, where the try sets ``done``."""
    flag = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    done = [*tried.body, *tried.orelse]
    return isinstance(flag, ast.Name) and flag.id in names_in(done, ast.Store)


def _leaves_as_is(statement: ast.stmt, read: set[str]) -> bool:
    if isinstance(statement, ast.Pass | ast.Continue | ast.Delete):
        return True
    if isinstance(statement, ast.Expr):
        value = statement.value
        return isinstance(value, ast.Constant) or (
            isinstance(value, ast.Call) and name_of(value.func) in HARMLESS
        )
    if isinstance(statement, ast.AugAssign):
        target = unparsed(statement.target)
        return (
            isinstance(statement.op, ast.Add)
            and COUNTS.search(target) is not None
            and target not in read
        )
    if isinstance(statement, ast.If):
        return all(_leaves_as_is(each, read) for each in [*statement.body, *statement.orelse])
    if isinstance(statement, ast.Assign) and _is_bounded(statement.value):
        return True
    return (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.Constant)
        and all(isinstance(each, ast.Name) and each.id not in read for each in statement.targets)
    )


def _is_bounded(value: ast.expr) -> bool:
    """``min(2 * parts, 8)``, ``max(1, size // 2)``: at the bound it stays the same."""
    return (
        isinstance(value, ast.Call)
        and name_of(value.func) in ("min", "max")
        and len(value.args) == 2
        and any(isinstance(each, ast.Constant) for each in value.args)
    )


def _told(handler: ast.ExceptHandler) -> Iterator[tuple[str, object]]:
    """Names that the handler assigns, with their values."""
    for statement in handler.body:
        if isinstance(statement, ast.Assign):
            given = statement.value
            value = given.value if isinstance(given, ast.Constant) else FAILED
            yield from ((unparsed(each), value) for each in statement.targets)


def _of_caller(function: Function | ast.Module, name: str) -> Iterator[list[ast.stmt]]:
    """What runs where a call of this function came back without a result."""
    own = list(run_in(function.body))
    results = {
        unparsed(target)
        for node in own
        if isinstance(node, ast.Assign) and _is_call(node.value, name)
        for target in node.targets
    }
    for node in own:
        if isinstance(node, ast.If | ast.While):
            for each in sorted(results):
                yield from _branch(node, each, None)
            for call in nodes_in(node.test, ast.Call):
                if _is_call(call, name):
                    yield from _branch(node, unparsed(call), None)


def _is_call(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and name_of(value.func) == name


def _branch(asked: ast.If | ast.While, name: str, value: object) -> Iterator[list[ast.stmt]]:
    """The branch taken while ``name`` has this value; none where the test does not show it."""
    taken = _holds(asked.test, name, value)
    if taken is not None:
        yield asked.body if taken else asked.orelse


def _holds(test: ast.expr, name: str, value: object) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _holds(test.operand, name, value)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        parts = {_holds(each, name, value) for each in test.values}
        decides = isinstance(test.op, ast.Or)
        if decides in parts:
            return decides
        return None if parts == {None} else not decides
    if unparsed(test) == name:
        return bool(value)
    if isinstance(test, ast.Compare) and unparsed(test.left) == name and len(test.ops) == 1:
        return _compares(test, value)
    return None


def _compares(test: ast.Compare, value: object) -> bool | None:
    (asked,), (other,) = test.ops, test.comparators
    if not isinstance(other, ast.Constant) or not isinstance(
        asked, ast.Is | ast.Eq | ast.IsNot | ast.NotEq
    ):
        return None
    same = value is not FAILED and value == other.value
    return same if isinstance(asked, ast.Is | ast.Eq) else not same
