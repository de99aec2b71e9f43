"""What else of a program hangs on how many micro-batches there are: then their number is not
changed, or it is said.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site
from auditor.patch import Refused
from auditor.patch.effects import expect_only_logs
from auditor.syntax.index import SCOPES, names_in, nodes_in
from auditor.syntax.qualified_names import last_key

HARMLESS = frozenset({"backward", "train", "zero_grad", "synchronize"})
"""Calls that may stand alone among the statements of a micro-batch: they do as much for a large one
as for several small ones.
"""

WRAPPERS = frozenset({"enumerate", "tqdm", "trange", "track", "iter"})
"""What a loop may wrap around the loader that it goes over."""


class Unclear(Exception):
    """Why the numbers cannot be changed for certain, in a clause."""


@dataclass(frozen=True)
class Turn:
    """What decides that an effective batch is complete: ``node`` with ``count``; ``around`` holds
    the work of a micro-batch.
    """

    file: str
    node: ast.If | ast.For
    count: ast.expr
    counter: ast.expr
    around: ast.For | ast.While | ast.FunctionDef

    def site(self, source: Source) -> Site:
        """Its line."""
        return source.site_of(self.file, self.node)

    def is_count(self, node: ast.AST) -> bool:
        """True for the same name as that of the count, or the same number."""
        if isinstance(self.count, ast.Constant):
            return (
                isinstance(node, ast.Constant)
                and type(node.value) is int
                and node.value == self.count.value
            )
        return isinstance(node, ast.expr) and last_key(node) == last_key(self.count) != ""

    def divisors(self) -> Iterator[ast.expr]:
        """What is divided by in the work of a micro-batch."""
        for node in nodes_in(self.around, ast.BinOp, ast.AugAssign):
            if isinstance(node.op, ast.Div):
                yield node.right if isinstance(node, ast.BinOp) else node.value

    @property
    def test(self) -> ast.expr:
        """The expression that decides."""
        return self.node.test if isinstance(self.node, ast.If) else self.node.iter


class Uses:
    """Every use of the two numbers, of what counts micro-batches and of the loader's length.

    ``loader`` is the call that makes the loader, ``batch`` the name of the batch size, empty where
    it is a number in that call.
    """

    def __init__(self, source: Source, turn: Turn, loader: ast.Call, batch: str) -> None:
        self._source, self._turn, self._loader, self._batch = source, turn, loader, batch
        self._said: dict[str, None] = {}
        self._grown: set[str] = set()

    def checked(self) -> tuple[str, ...]:
        """Sentences on what a change shifts without a bearing on training. Raises :class:`Unclear`
        for all that may have one.
        """
        self._numbers()
        self._counters()
        self._each_batch(self._turn.around.body)
        self._lengths()
        return tuple(self._said)

    def _numbers(self) -> None:
        """Each use of their names must be one that means the same after the change."""
        literal = isinstance(self._turn.count, ast.Constant)
        for file, node in self._nodes():
            count = self._turn.is_count(node)
            if literal and count and not self._in(file, node, self._turn.around):
                continue  # a number of somebody else's
            batch = self._batch and isinstance(node, ast.expr) and last_key(node) == self._batch
            if (count or batch) and not self._keeps(file, node):
                self._refuse(file, node, f"`{ast.unparse(node)}` is also used")

    def _keeps(self, file: str, node: ast.AST) -> bool:
        """In the test, the call that makes the loader or a log; a divisor; the effective batch,
        which stays; or a divided loss made whole again to be shown.
        """
        if self._is_shown(file, node) or self._in(file, node, self._loader):
            return True
        parent = next(self._source.index(file).up(node), None)
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
            sides = (parent.left, parent.right)
            return any(
                isinstance(side, ast.Call) and name_of(side.func) == "item" for side in sides
            ) or (
                any(map(self._turn.is_count, sides))
                and any(self._batch and last_key(side) == self._batch for side in sides)
            )
        return any(node is divisor for divisor in self._turn.divisors())

    def _counters(self) -> None:
        """What is counted may only be shown; and a loop may not ask for so many micro-batches."""
        around = self._turn.around
        if (
            around is not self._turn.node
            and isinstance(around, ast.For)
            and not _goes_over(around.iter)
        ):
            self._refuse(self._turn.file, around, "the loop does not simply go over its loader")
        nodes = list(nodes_in(self._turn.counter, ast.Name, ast.Attribute))
        owners = {node.value for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if node not in owners:
                self._counter(node)

    def _counter(self, counter: ast.expr) -> None:
        around, name = self._turn.around, name_of(counter)
        own = isinstance(around, ast.For) and name in names_in(around.target)
        for file, node in self._nodes():
            if type(node) is type(counter) and name_of(node) == name:
                inside = not own or (file == self._turn.file and self._in(file, node, around))
                if inside and not self._is_shown(file, node) and not self._logs_by(file, node):
                    self._refuse(file, node, f"`{name}` counts micro-batches and is also used")

    def _logs_by(self, file: str, node: ast.AST) -> bool:
        """True if it decides when something is logged, which is said."""
        test = self._statement(file, node)
        if not isinstance(test, ast.If) or test.orelse or not all(map(_only_logs, test.body)):
            return False
        self._said[
            f"{Site(file, test.lineno)} logs by the number of micro-batches, of which there are "
            "then fewer or more"
        ] = None
        return True

    def _each_batch(self, statements: list[ast.stmt]) -> None:
        """Statements that are called for their effect must be known to have none that counts."""
        for statement in statements:
            if statement is self._turn.node:
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                if name_of(call.func) == "append" and isinstance(call.func, ast.Attribute):
                    self._grown.add(name_of(call.func.value))
                elif name_of(call.func) not in HARMLESS and not _only_logs(statement):
                    why = f"`{ast.unparse(statement)[:60]}` runs once for each micro-batch"
                    self._refuse(self._turn.file, statement, why)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant):
                if not name_of(statement.target):
                    why = f"`{ast.unparse(statement)[:60]}` counts micro-batches"
                    self._refuse(self._turn.file, statement, why)
                self._counter(statement.target)
            elif isinstance(statement, SCOPES):
                self._refuse(self._turn.file, statement, "a function is made for each micro-batch")
            for inside in ("body", "orelse", "handlers", "finalbody"):
                self._each_batch(getattr(statement, inside, []))

    def _lengths(self) -> None:
        """``len(loader)``, or of a list that each adds to, counts micro-batches: it may make a mean."""
        counted = self._grown | {
            name_of(target)
            for _, each in self._source.every(ast.Assign)
            if each.value is self._loader
            for target in each.targets
        }
        for file, node in self._source.calls_of("len"):
            key = last_key(node.args[0]) if len(node.args) == 1 else ""
            if key not in counted and "loader" not in key.lower():
                continue
            parent = next(self._source.index(file).up(node), None)
            divides = isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div)
            mean = divides and parent.right is node  # type: ignore[union-attr]
            if not mean and not self._is_shown(file, node):
                self._refuse(file, node, f"`{ast.unparse(node)}` counts micro-batches")

    # -- what they share ---------------------------------------------------------------------------

    def _nodes(self) -> Iterator[tuple[str, ast.AST]]:
        """All constants, and all that is read."""
        for file in self._source.texts:
            for node in self._source.nodes(file):
                if isinstance(node, ast.Constant | ast.Call) or isinstance(
                    getattr(node, "ctx", None), ast.Load
                ):
                    yield file, node

    def _is_shown(self, file: str, node: ast.AST) -> bool:
        statement = self._statement(file, node)
        logged = statement is not None and _only_logs(statement)
        return logged or self._in(file, node, self._turn.test)

    def _statement(self, file: str, node: ast.AST) -> ast.stmt | None:
        return self._source.index(file).nearest(node, ast.stmt)  # type: ignore[type-abstract]

    def _in(self, file: str, node: ast.AST, whole: ast.AST) -> bool:
        return self._source.index(file).holds(whole, node)

    def _refuse(self, file: str, node: ast.AST, why: str) -> None:
        raise Unclear(f"{why} ({Site(file, getattr(node, 'lineno', 0))})")


def _only_logs(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    try:
        expect_only_logs(statement, safe=True)
    except Refused:
        return False
    return True


def _goes_over(iterated: ast.expr) -> bool:
    """``loader``, ``enumerate(loader)``, ``tqdm(enumerate(loader), desc="...")``."""
    while isinstance(iterated, ast.Call):
        if name_of(iterated.func) not in WRAPPERS or not iterated.args:
            return False
        iterated = iterated.args[0]
    return isinstance(iterated, (ast.Name, ast.Attribute))
