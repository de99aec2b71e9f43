"""Finds the statements that an edit drops, and the blocks that statements stand in."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from auditor.model import Edit
from auditor.patch.module import Module
from auditor.patch.source import Refused


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
