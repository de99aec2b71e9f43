"""Which ``total += loss.item()`` could stay a tensor: every other use of the sum works with a
tensor of no dimensions.
"""

from __future__ import annotations

import ast
import re
from itertools import takewhile

from auditor.evidence.source.files import Index, Source, Span, name_of, span_of, unparsed
from auditor.model import Site
from auditor.syntax.index import LOOPS, called_in, nodes_in
from auditor.syntax.reaching import shared_names

SINKS = frozenset({"print", "float", "str", "format", "add_scalar", "info", "debug"})
"""Calls that take a tensor of no dimensions as they take a number, and read it themselves."""

HOMES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div)
INTEGER_FORMAT = re.compile(r"%[^%a-zA-Z]*[dioxXc]")
"""A ``%`` format that takes no tensor of floats."""

SELDOM = 10
"""Steps between two reads from which one is left out of account (``ReadingRule.interval``)."""

DEEPEST = 3
"""Names that a sum is handed on to (``mean = total / n``), one after the other, that are
followed.
"""


def summed_read(source: Source, site: Site, *, within: bool = False) -> Span | None:
    """Where the ``.item()`` of a running sum on the site's line stands; None if a tensor could not
    take the number's place, or another line would read it on each step instead. ``within``: the
    line runs several times in a step, so that its own loop is not the training's.
    """
    scopes = _Scopes(source.index(site.file))
    for node in source.index(site.file).on(site.line, ast.AugAssign):
        if isinstance(node.op, ast.Add):
            reads = [
                call for call in nodes_in(node.value, ast.Call) if name_of(call.func) == "item"
            ]
            if (
                len(reads) == 1
                and not reads[0].args
                and scopes.only_arithmetic(reads[0], node)
                and scopes.takes_a_tensor(node, within=within)
            ):
                return span_of(reads[0])
    return None


class _Scopes:
    """Who else in one file uses a name."""

    def __init__(self, index: Index) -> None:
        self.index, self.parents, self.up = index, index.parents, index.up

    def only_arithmetic(self, node: ast.AST, root: ast.AST) -> bool:
        """Between the read and the statement nothing but sums and products."""
        between: list[ast.AST] = []
        for up in self.up(node):
            if up is root:
                return all(
                    isinstance(each, ast.BinOp) and isinstance(each.op, ARITHMETIC)
                    for each in between
                )
            between.append(up)
        return False

    def takes_a_tensor(self, summing: ast.AugAssign, *, within: bool) -> bool:
        """True if all other uses of the sum do, and none of them reads it on every step."""
        if not isinstance(summing.target, ast.Name):
            return False  # who else reads an attribute or an element cannot be seen
        scope = next(up for up in self.up(summing) if isinstance(up, HOMES))
        around = takewhile(lambda up: up is not scope, self.up(summing))
        loops = [up for up in around if isinstance(up, LOOPS)]
        loop = loops[-1 if within else 0] if loops else None
        if loop is None or summing.target.id in shared_names(scope):
            return False
        return self._all_fine(summing.target.id, scope, loop, DEEPEST)

    def _all_fine(self, name: str, scope: ast.AST, loop: ast.AST, deeper: int) -> bool:
        uses = [node for node in nodes_in(scope, ast.Name) if node.id == name]
        return deeper > 0 and all(self._fine(use, scope, loop, deeper) for use in uses)

    def _fine(self, use: ast.Name, scope: ast.AST, loop: ast.AST, deeper: int) -> bool:
        if isinstance(use.ctx, ast.Store):
            return True
        top, parent = self._whole(use)
        if isinstance(parent, ast.Assign):
            target = parent.targets[0]
            if (
                len(parent.targets) > 1
                or not isinstance(target, ast.Name)
                or parent.value is not top
            ):
                return False
            return self._all_fine(target.id, scope, loop, deeper - 1)
        return self._is_read(top, parent) and not self._on_every_step(use, loop)

    def _whole(self, use: ast.AST) -> tuple[ast.AST, ast.AST]:
        """The arithmetic that the use is part of, and what stands around it."""
        parent = self.parents[use]
        while isinstance(parent, ast.UnaryOp) or (
            isinstance(parent, ast.BinOp) and isinstance(parent.op, ARITHMETIC)
        ):
            use, parent = parent, self.parents[parent]
        return use, parent

    def _is_read(self, top: ast.AST, parent: ast.AST) -> bool:
        if isinstance(parent, ast.Call):
            return top is not parent.func and (
                name_of(parent.func) in SINKS or _is_math(parent.func)
            )
        if isinstance(parent, ast.Tuple):
            parent = self.parents[parent]
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mod):
            text = parent.left.value if isinstance(parent.left, ast.Constant) else None
            return isinstance(text, str) and not INTEGER_FORMAT.search(text)
        return isinstance(parent, (ast.FormattedValue, ast.Compare))

    def _on_every_step(self, use: ast.AST, loop: ast.AST) -> bool:
        inside: ast.AST = use
        for up in self.up(use):
            if up is loop or isinstance(up, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
                return up is loop or up not in self.up(loop)  # who calls an inner one is not known
            if isinstance(up, ast.If) and inside in up.body and self._is_seldom(up.test):
                return False
            inside = up
        return False

    def _is_seldom(self, test: ast.expr) -> bool:
        """``i % 100 == 0``, ``not i % 100``, ``i + 1 == len(loader)``, and more with them: what holds
        on few steps. A flag, a rank or a value may hold on each.
        """
        if isinstance(test, ast.BoolOp):
            some = any if isinstance(test.op, ast.And) else all
            return some(map(self._is_seldom, test.values))
        if isinstance(test, ast.UnaryOp):
            return isinstance(test.op, ast.Not) and self._is_modulo(test.operand)
        if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Eq):
            return False
        sides = (test.left, *test.comparators)
        return any(map(self._is_modulo, sides)) or "len" in called_in(sides)

    def _is_modulo(self, value: ast.expr) -> bool:
        """``i % 100``; not one of which the file says that it is less than ``SELDOM``."""
        if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Mod):
            return False
        known = [
            value.right,
            *(each.value for each in self.index.assigned.get(unparsed(value.right), ())),
        ]
        numbers = [each.value for each in known if isinstance(each, ast.Constant)]
        return not any(isinstance(each, int) and each < SELDOM for each in numbers)


def _is_math(callee: ast.expr) -> bool:
    """True for ``math.exp``: it takes what has ``__float__`` and gives a number."""
    return (
        isinstance(callee, ast.Attribute)
        and isinstance(callee.value, ast.Name)
        and callee.value.id == "math"
    )
