"""Handlers that are meant for memory that ran out and catch every other error as well."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping

from auditor.evidence.source.files import Function, name_of, unparsed
from auditor.syntax.index import nodes_in, run_in

BROAD = frozenset({"Exception", "BaseException", "RuntimeError"})
"""Classes that an out-of-memory error is one of, and a wrong shape or a failed assertion as well."""

MEMORY = re.compile(
    r"out[ _-]?of[ _-]?mem|(?<![a-z])ooms?(?![a-z])|\bvram\b"
    r"|\b(enough|gpu|cuda|device|little|much) memory\b|\bmemory (error|limit|is full|ran out)",
    re.IGNORECASE,
)
"""Words by which a handler says what it is for: in its text, its comments and its names."""

FREES = frozenset({"empty_cache", "memory_summary", "reset_peak_memory_stats"})
SIZES = re.compile(r"batch|size|chunk|part|micro|split|accum|(^|_)(bs|mb|n)$", re.IGNORECASE)
"""Names that a handler halves or doubles to try with less."""

TELLS = frozenset(
    """
    print str repr format type isinstance getattr hasattr format_exc print_exc print_exception
    format_exception log info debug warning warn error exception critical write append
    """.split()
)
"""Calls that may be given an error and leave it at that."""

ENDS = frozenset({"exit", "_exit", "abort", "kill"})


def is_broad(handler: ast.ExceptHandler) -> bool:
    """``except:``, ``except Exception``, ``except RuntimeError``, also as one of several classes."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or name_of(kind) in BROAD for kind in kinds)


def means_memory(handler: ast.ExceptHandler, text: str) -> bool:
    """True if what the handler does, or says of itself, is about memory. ``text``: of its file."""
    if shrinks(handler.body):
        return True
    lines = text.split("\n")[handler.lineno - 1 : handler.end_lineno]
    return MEMORY.search("\n".join(lines)) is not None


def swallows(handler: ast.ExceptHandler, definitions: Mapping[str, Function]) -> bool:
    """True if no error leaves the handler, whatever it was, and the training goes on behind it."""
    if not is_broad(handler):
        return False
    if isinstance(handler.body[-1], ast.Break):
        return False
    for node in run_in(handler.body):
        if isinstance(node, ast.Raise | ast.Assert):
            return False
        if isinstance(node, ast.Call) and (
            name_of(node.func) in ENDS or _hands_on(node, handler.name, definitions)
        ):
            return False
    return True


def shrinks(body: Iterable[ast.stmt]) -> bool:
    """True if the statements empty the cache, or halve a size."""
    return any(_frees(node) or _halves(node) for node in run_in(body))


def goes_on(body: Iterable[ast.stmt]) -> bool:
    """True if the statements neither raise nor end the program."""
    return not any(
        isinstance(node, ast.Raise | ast.Assert)
        or (isinstance(node, ast.Call) and name_of(node.func) in ENDS)
        for node in run_in(body)
    )


def _frees(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) in FREES


def _halves(node: ast.AST) -> bool:
    """``size //= 2``, ``parts *= 2``, ``size = size // 2``, ``size = max(1, size // 2)``."""
    if isinstance(node, ast.AugAssign):
        return _by_two(node.target, node.op, node.value)
    if not isinstance(node, ast.Assign):
        return False
    names = {unparsed(target) for target in node.targets}
    return any(
        _by_two(each.left, each.op, each.right) and unparsed(each.left) in names
        for each in nodes_in(node.value, ast.BinOp)
    )


def _by_two(sized: ast.expr, op: ast.operator, value: ast.expr) -> bool:
    if not isinstance(op, ast.FloorDiv | ast.Mult) or unparsed(value) != "2":
        return False
    return SIZES.search(name_of(sized)) is not None


def _hands_on(call: ast.Call, error: str | None, definitions: Mapping[str, Function]) -> bool:
    """The error is given to something that may raise it, or calls something of the program's that
    raises.
    """
    own = definitions.get(name_of(call.func))
    if own is not None and any(nodes_in(own, ast.Raise)):
        return error is None or bool(_given(call, error)) or _ends_by_raise(own.body)
    return own is None and name_of(call.func) not in TELLS and bool(_given(call, error))


def _ends_by_raise(body: Iterable[ast.stmt]) -> bool:
    return isinstance(list(body)[-1], ast.Raise)


def _given(call: ast.Call, error: str | None) -> list[ast.expr]:
    given = [*call.args, *(each.value for each in call.keywords)]
    return [each for each in given if isinstance(each, ast.Name) and each.id == error]
