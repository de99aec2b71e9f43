"""A parsed file: finds the calls that an edit names, and changes the tree as the text."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from auditor.model import Edit
from auditor.patch.source import Refused, SourceText, Splice, parse
from auditor.syntax.index import above, name_of, parents_of, span_of

Node = TypeVar("Node", bound=ast.AST)

_QUOTED = frozenset({"JoinedStr", "TemplateStr"})


@dataclass(frozen=True)
class Change:
    """One change, said twice: in text, and on the syntax tree. The patch needs both alike."""

    splices: tuple[Splice, ...]
    rewrite: Callable[[], None]


class Module:
    """Source text with its syntax tree and the parent of every node."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tree = parse(source.raw)
        self.parents = parents_of(self.tree)

    @cached_property
    def _calls(self) -> list[ast.Call]:
        return [node for node in self.parents if isinstance(node, ast.Call)]

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """Parents of a node, innermost first."""
        return above(node, self.parents)

    def quoted_in(self, node: ast.AST) -> ast.AST | None:
        """The outermost f-string that holds the node.

        Before Python 3.12 positions inside an f-string are wrong, so no edit is made there, on any
        version.
        """
        return next(
            (up for up in reversed([*self.ancestors(node)]) if type(up).__name__ in _QUOTED), None
        )

    def expect_line(self, edit: Edit) -> None:
        """Raise :class:`Refused` if the site's line is not what it was in the recorded run."""
        site = edit.site
        if not 0 < site.line <= len(self.source.lines):
            raise Refused(f"the file has no line {site.line}")
        # Compared without spacing: a recorded line has its form feeds as spaces.
        if site.text and self.source.lines[site.line - 1].split() != site.text.split():
            raise Refused(f"line {site.line} is not what it was when the run was recorded")

    def calls(self, edit: Edit) -> list[ast.Call]:
        """The call that the edit names on its line; several only if they are written alike. Raises
        :class:`Refused`.
        """
        line = edit.site.line
        named = [call for call in self._calls if name_of(call.func) == edit.call]
        exact = [call for call in named if span_of(call) == edit.span]
        found = [(call, self.quoted_in(call) or call) for call in exact or named]
        here = [(call, place) for call, place in found if covers(place, line)]
        near = [(call, place) for call, place in here if line in (place.lineno, _name_line(place))]  # type: ignore[attr-defined]
        if not here:
            raise Refused(f"there is no call of `{edit.call}` on line {line}")
        if any(place is not call for call, place in near or here):
            raise Refused(f"the call of `{edit.call}` on line {line} stands inside an f-string")
        return only_alike(
            [call for call, _ in near or here], f"line {line} calls `{edit.call}` more than once"
        )

    def replace(self, old: ast.expr, new: ast.expr) -> None:
        """Put ``new`` where ``old`` is in the tree; ``new`` may hold ``old``."""
        parent = self.parents[old]
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is old else item for item in value]


def _name_line(node: ast.AST) -> int | None:
    return node.func.end_lineno if isinstance(node, ast.Call) else None


def covers(node: ast.AST, line: int) -> bool:
    """True if the node's lines include ``line``."""
    return bool(node.lineno <= line <= node.end_lineno)  # type: ignore[attr-defined]


def only_alike(nodes: Sequence[Node], otherwise: str) -> list[Node]:
    """All nodes if they are the same syntax, as one edit means all; else :class:`Refused`."""
    if not all(same(nodes[0], node) for node in nodes[1:]):
        raise Refused(f"{otherwise}, so which one is meant is not known")
    return list(nodes)


def same(left: object, right: object) -> bool:
    """True if two trees are the same syntax, wherever they stand. Does not recurse: real files nest
    deeply.
    """
    pending = [(left, right)]
    while pending:
        one, other = pending.pop()
        if type(one) is not type(other):
            return False
        if isinstance(one, ast.AST):
            pending += [
                (getattr(one, name, None), getattr(other, name, None)) for name in one._fields
            ]
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pending += zip(one, other, strict=True)
        elif one != other:
            return False
    return True


def called_statements(module: Module, edit: Edit) -> list[ast.stmt]:
    """The statements that only make the call which the edit names. Raises :class:`Refused`."""
    found: list[ast.stmt] = []
    for call in module.calls(edit):
        parent = module.parents[call]
        if isinstance(parent, ast.Await):
            parent = module.parents[parent]
        if isinstance(parent, ast.withitem):
            raise Refused(f"`{edit.call}` opens a with block, which would have to be indented anew")
        if not isinstance(parent, ast.Expr):
            raise Refused(f"the value of `{edit.call}` is used on line {edit.site.line}")
        found.append(parent)
    return found


@dataclass(frozen=True)
class Block:
    """One list of statements: the ``field`` of a node (``body``, ``orelse``, ``finalbody``)."""

    owner: ast.AST
    field: str

    @property
    def statements(self) -> list[ast.stmt]:
        """The statements, as they stand in the tree."""
        statements: list[ast.stmt] = getattr(self.owner, self.field)
        return statements


def block_of(module: Module, statement: ast.stmt) -> Block:
    """The block that a statement stands in."""
    owner = module.parents[statement]
    for name, value in ast.iter_fields(owner):
        if isinstance(value, list) and any(item is statement for item in value):
            return Block(owner, name)
    raise AssertionError("a statement is in no block of its parent")
