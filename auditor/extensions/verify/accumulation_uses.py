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
from auditor.patch.logging_calls import expect_only_logs
from auditor.syntax.index import SCOPES, names_in, nodes_in
from auditor.syntax.qualified_names import last_key

HARMLESS = frozenset({"backward", "train", "zero_grad", "synchronize"})
"""Calls that may stand alone among the statements of a micro-batch: they do as much for a large one
as for several small ones.
"""

WRAPPERS = frozenset({"enumerate", "tqdm", "trange", "track", "iter"})
"""What a loop may wrap around the loader that it goes over."""

DIVISIONS = (ast.Div, ast.FloorDiv)


class Unclear(Exception):
    """Why the numbers cannot be changed for certain, in a clause."""


class Code:
    """The recorded source, and what is around each node of it."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def nodes(self) -> Iterator[tuple[str, ast.AST]]:
        """All nodes with their files."""
        return ((file, node) for file in self.source.texts for node in self.source.nodes(file))

    def above(self, file: str, node: ast.AST) -> Iterator[ast.AST]:
        """What holds a node, innermost first."""
        return self.source.index(file).up(node)

    def statement(self, file: str, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around a node."""
        return self.source.index(file).nearest(node, ast.stmt)  # type: ignore[type-abstract]

    def around(self, file: str, node: ast.AST) -> ast.For | ast.While | ast.FunctionDef | None:
        """The innermost loop or function that holds it."""
        for up in self.above(file, node):
            if isinstance(up, (ast.For, ast.While, ast.FunctionDef)):
                return up
            if isinstance(up, SCOPES):
                return None
        return None

    def site(self, file: str, node: ast.AST) -> Site:
        """The line of a node, or of the statement that it belongs to."""
        return Site(file, getattr(node, "lineno", 0))


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


def said_of(code: Code, turn: Turn, loader: ast.Call, batch: str) -> tuple[str, ...]:
    """Sentences on what a change shifts without a bearing on training. Raises :class:`Unclear` for
    all that may have one.

    ``loader`` is the call that makes the loader, ``batch`` the name of the batch size, empty where
    it is a number in that call.
    """
    uses = _Uses(code, turn, loader, batch)
    uses.of_the_numbers()
    uses.of_the_counter()
    uses.of_each_batch(turn.around.body)
    uses.of_the_length()
    return tuple(dict.fromkeys(uses.said))


class _Uses:
    def __init__(self, code: Code, turn: Turn, loader: ast.Call, batch: str) -> None:
        self.code, self.turn, self.loader, self.batch = code, turn, loader, batch
        self.said: list[str] = []
        self._grown: set[str] = set()

    # -- the two numbers ---------------------------------------------------------------------------

    def of_the_numbers(self) -> None:
        """Each use of their names must be one that means the same after the change."""
        literal = isinstance(self.turn.count, ast.Constant)
        for file, node in self.code.nodes():
            count = self.turn.is_count(node) and _is_read(node)
            if (
                literal
                and count
                and (file != self.turn.file or not self._in(file, node, self.turn.around))
            ):
                continue  # a number of somebody else's
            batch = self.batch and _is_read(node) and last_key(node) == self.batch  # type: ignore[arg-type]
            if (count or batch) and not self._keeps(file, node):
                self._refuse(file, node, f"`{ast.unparse(node)}` is also used")

    def _keeps(self, file: str, node: ast.AST) -> bool:
        parent = next(self.code.above(file, node), None)
        if (
            self._in(file, node, self.turn.test)
            or self._in(file, node, self.loader)
            or self._in_a_log(file, node)
        ):
            return True
        if isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):
            return self._product(parent)
        if self.turn.is_count(node) and isinstance(parent, (ast.BinOp, ast.AugAssign, ast.Compare)):
            return self._divides(file, node, parent)
        call = (
            next(self.code.above(file, parent), None) if isinstance(parent, ast.keyword) else parent
        )
        return isinstance(call, ast.Call) and (
            self._is_loader(call) or self._handed_on(call, node, parent)
        )

    def _divides(
        self, file: str, node: ast.AST, parent: ast.BinOp | ast.AugAssign | ast.Compare
    ) -> bool:
        """The loss, or the loader's length; or ``if count > 1:`` asks whether there is something to
        divide.
        """
        if isinstance(parent, ast.Compare):
            return all(each is node or _is_one(each) for each in (parent.left, *parent.comparators))
        if not isinstance(parent.op, DIVISIONS) or node is not (
            parent.right if isinstance(parent, ast.BinOp) else parent.value
        ):
            return False
        if isinstance(parent, ast.BinOp) and any(map(_is_length, nodes_in(parent.left, ast.Call))):
            return True
        return isinstance(parent.op, ast.Div) and self._in(file, node, self.turn.around)

    def _is_loader(self, call: ast.Call) -> bool:
        return name_of(call.func) == name_of(self.loader.func)

    def _product(self, product: ast.BinOp) -> bool:
        """The effective batch, which stays; or a divided loss made whole again to be shown."""
        sides = (product.left, product.right)
        both = any(map(self.turn.is_count, sides)) and any(
            self.batch and last_key(side) == self.batch for side in sides
        )
        return both or any(
            isinstance(side, ast.Call) and name_of(side.func) == "item" for side in sides
        )

    def _handed_on(self, call: ast.Call, node: ast.AST, parent: ast.AST | None) -> bool:
        """To a function of the program's own that calls it by the same name: there its uses are
        looked at.
        """
        key = last_key(node)  # type: ignore[arg-type]
        if isinstance(parent, ast.keyword):
            return parent.arg == key and any(True for _ in self._functions(name_of(call.func)))
        place = next((number for number, given in enumerate(call.args) if given is node), None)
        names = [
            [arg.arg for arg in function.args.args if arg.arg != "self"]
            for function in self._functions(name_of(call.func))
        ]
        return (
            place is not None
            and bool(names)
            and all(each[place : place + 1] == [key] for each in names)
        )

    def _functions(self, name: str) -> Iterator[ast.FunctionDef]:
        every = self.code.source.every(ast.FunctionDef)
        return (function for _, function in every if function.name == name)

    # -- the loader's length -----------------------------------------------------------------------

    def of_the_length(self) -> None:
        """``len(loader)``, or of a list that each adds to, counts micro-batches: it may make a
        mean, or be divided by the count.
        """
        for file, node in self.code.source.calls_of("len"):
            if not (_is_length(node) and self._holds_loader(node.args[0])):
                continue
            parent = next(self.code.above(file, node), None)
            mean = (
                isinstance(parent, ast.BinOp)
                and isinstance(parent.op, ast.Div)
                and parent.right is node
            )
            steps = (
                isinstance(parent, ast.BinOp)
                and isinstance(parent.op, DIVISIONS)
                and self.turn.is_count(parent.right)
            )
            if not (
                mean or steps or self._in(file, node, self.turn.test) or self._in_a_log(file, node)
            ):
                self._refuse(file, node, f"`{ast.unparse(node)}` counts micro-batches")

    def _holds_loader(self, node: ast.expr) -> bool:
        bound = {
            name_of(target)
            for _, each in self.code.source.every(ast.Assign)
            if each.value is self.loader
            for target in each.targets
        }
        return last_key(node) in bound | self._grown or "loader" in last_key(node).lower()

    # -- what counts micro-batches -----------------------------------------------------------------

    def of_the_counter(self) -> None:
        """What is counted may only be shown; and a loop may not ask for so many micro-batches."""
        around = self.turn.around
        nodes = list(nodes_in(self.turn.counter, ast.Name, ast.Attribute))
        owners = {node.value for node in nodes if isinstance(node, ast.Attribute)}
        counted = [node for node in nodes if node not in owners]
        if (
            around is not self.turn.node
            and isinstance(around, ast.For)
            and not _goes_over(around.iter)
        ):
            self._refuse(self.turn.file, around, "the loop does not simply go over its loader")
        for node in counted:
            self._counted(node)

    def _counted(self, counter: ast.expr) -> None:
        around, name = self.turn.around, name_of(counter)
        own = isinstance(around, ast.For) and name in names_in(around.target)
        for file, node in self.code.nodes():
            inside = not own or (file == self.turn.file and self._in(file, node, around))
            if inside and type(node) is type(counter) and name_of(node) == name and _is_read(node):  # type: ignore[arg-type]
                self._shown(file, node, name)

    def _shown(self, file: str, node: ast.AST, name: str) -> None:
        """The counter is in its own test, counts on, or decides when something is logged."""
        if (
            self._in(file, node, self.turn.test)
            or self._in_a_log(file, node)
            or self._counts_on(file, node, name)
        ):
            return
        test = self.code.statement(file, node)
        if isinstance(test, ast.If) and self._in(file, node, test.test):
            if not test.orelse and all(_only_logs(statement) for statement in test.body):
                self.said.append(
                    f"{self.code.site(file, test)} logs by the number of micro-batches, of which "
                    "there are then fewer or more"
                )
                return
            if self.turn.node.__class__ is ast.For and _only_steps(test.body):
                return
        self._refuse(file, node, f"`{name}` counts micro-batches and is also used")

    def _counts_on(self, file: str, node: ast.AST, name: str) -> bool:
        statement = self.code.statement(file, node)
        return isinstance(statement, ast.Assign) and any(
            name_of(target) == name for target in statement.targets
        )

    # -- what is done for each micro-batch ---------------------------------------------------------

    def of_each_batch(self, statements: list[ast.stmt]) -> None:
        """Statements that are called for their effect must be known to have none that counts."""
        for statement in statements:
            if statement is self.turn.node:
                continue
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                if self._appends(statement.value):
                    self._grown.add(name_of(statement.value.func.value))  # type: ignore[attr-defined]
                elif name_of(statement.value.func) not in HARMLESS and not _only_logs(statement):
                    self._refuse(
                        self.turn.file,
                        statement,
                        f"`{ast.unparse(statement)[:60]}` runs once for each micro-batch",
                    )
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.value, ast.Constant):
                if not name_of(statement.target):
                    self._refuse(
                        self.turn.file,
                        statement,
                        f"`{ast.unparse(statement)[:60]}` counts micro-batches",
                    )
                self._counted(statement.target)
            elif isinstance(statement, SCOPES):
                self._refuse(self.turn.file, statement, "a function is made for each micro-batch")
            for inside in ("body", "orelse", "handlers", "finalbody"):
                self.of_each_batch(getattr(statement, inside, []))

    def _appends(self, call: ast.Call) -> bool:
        """``losses.append(loss)``, of a list that has a name."""
        function = call.func
        return (
            isinstance(function, ast.Attribute)
            and function.attr == "append"
            and bool(name_of(function.value))
        )

    # -- what they share ---------------------------------------------------------------------------

    def _in(self, file: str, node: ast.AST, whole: ast.AST) -> bool:
        return self.code.source.index(file).holds(whole, node)

    def _in_a_log(self, file: str, node: ast.AST) -> bool:
        statement = self.code.statement(file, node)
        return statement is not None and _only_logs(statement)

    def _refuse(self, file: str, node: ast.AST, why: str) -> None:
        raise Unclear(f"{why} ({self.code.site(file, node)})")


def _is_read(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        or isinstance(getattr(node, "ctx", None), ast.Load)
        or isinstance(node, ast.Call)
    )


def _only_logs(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.Expr):
        return False
    try:
        expect_only_logs(statement, safe=True)
    except Refused:
        return False
    return True


def _is_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in (0, 1)


def _is_length(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and name_of(node.func) == "len" and len(node.args) == 1


def _goes_over(iterated: ast.expr) -> bool:
    """``loader``, ``enumerate(loader)``, ``tqdm(enumerate(loader), desc="...")``."""
    while isinstance(iterated, ast.Call):
        if name_of(iterated.func) not in WRAPPERS or not iterated.args:
            return False
        iterated = iterated.args[0]
    return isinstance(iterated, (ast.Name, ast.Attribute))


def _only_steps(body: list[ast.stmt]) -> bool:
    """Clearing the gradients before the first micro-batch."""
    return all(
        isinstance(each, ast.Expr)
        and isinstance(each.value, ast.Call)
        and name_of(each.value.func) == "zero_grad"
        for each in body
    )
