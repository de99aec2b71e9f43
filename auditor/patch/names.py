"""What a name in a file stands for: followed through its imports, plain aliases and base classes,
never by running anything.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_STEPS = 4
"""Aliases and base classes that are followed from one to the next."""

_OWN = "."
"""Before the name of what the user's own packages export: ``from .data import Loader``."""


@dataclass
class Names:
    """The names that a file binds: full names of what it imports, and those that it binds in
    another way.
    """

    imported: dict[str, set[str]] = field(default_factory=dict)
    aliases: dict[str, list[ast.expr]] = field(default_factory=dict)
    local: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, nodes: Iterable[ast.AST]) -> Names:
        """The names of a file, from all its nodes."""
        names = cls()
        aliased: set[int] = set()
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names._import(node)
            elif isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_path(node.value):
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    names.aliases.setdefault(target.id, []).append(node.value)
                    aliased.add(id(target))
            elif isinstance(node, ast.ClassDef) and node.bases:
                names.aliases.setdefault(node.name, []).append(node.bases[0])
            elif id(node) not in aliased:
                names.local.update(_bound(node))
        return names

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        for item in node.names:
            if isinstance(node, ast.Import):
                whole = item.name if item.asname else item.name.partition(".")[0]
                self.imported.setdefault(item.asname or whole, set()).add(whole)
                continue
            home = f"{_OWN if node.level else ''}{node.module or ''}"
            if item.name == "*":
                self.stars.append(home)
            else:
                self.imported.setdefault(item.asname or item.name, set()).add(f"{home}.{item.name}")

    def full(self, expression: ast.expr, *, steps: int = _STEPS) -> set[str] | None:
        """All full names that an expression may stand for; None if it may also be an object that
        the file makes or is given.
        """
        root, path = _split(expression)
        if root is None or root in self.local or not steps:
            return None
        found = {*self.imported.get(root, ())}
        for value in self.aliases.get(root, ()):
            of_alias = self.full(value, steps=steps - 1)
            if of_alias is None:
                return None
            found |= of_alias
        if not found and hasattr(builtins, root):
            found = {f"builtins.{root}"}
        elif not found:
            found = {f"{module}.{root}" for module in self.stars}
        return {".".join((name, *path)) for name in found} or None

    def is_standard(self, expression: ast.expr) -> bool:
        """True if an expression may stand for something of Python's standard library."""
        root, _ = _split(expression)
        if root is None:
            return False
        found = {
            *self.imported.get(root, ()),
            *(name for value in self.aliases.get(root, ()) for name in self.full(value) or ()),
        }
        known = bool(found) or root in self.local or root in self.aliases
        return any(_is_standard(name) for name in found) or (not known and hasattr(builtins, root))


def _is_standard(name: str) -> bool:
    root = name.partition(".")[0]
    return root == "builtins" or root in sys.stdlib_module_names


def _split(expression: ast.expr) -> tuple[str | None, tuple[str, ...]]:
    """``a`` and ``("b", "c")`` of ``a.b.c``; None where it does not begin with a name."""
    path: list[str] = []
    while isinstance(expression, ast.Attribute):
        path.append(expression.attr)
        expression = expression.value
    return (expression.id if isinstance(expression, ast.Name) else None), tuple(reversed(path))


def _is_path(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute)) and _split(node)[0] is not None


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name
