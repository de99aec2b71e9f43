"""Names that a patch leaves unread: imports and plain assignments that nothing needs once a
statement or an argument is gone.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from auditor.patch.effects import writes
from auditor.patch.module import Module
from auditor.patch.source import Splice

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_IMPORTS = (ast.Import, ast.ImportFrom)
_BY_NAME = frozenset({"eval", "exec", "globals", "locals", "vars"})
"""Functions that read variables which the source does not show."""

_NEVER_LEANED_ON = frozenset({"torch", *sys.stdlib_module_names})
"""Modules whose import has no effect that a trainer leans on; of others only names are taken out of
an import that stays.
"""

Import = ast.Import | ast.ImportFrom


@dataclass
class Unused:
    """What nothing reads any more: whole statements, and some names of imports whose other names
    stay.
    """

    statements: set[ast.stmt] = field(default_factory=set)
    names: dict[Import, set[ast.alias]] = field(default_factory=dict)


class Names:
    """The names of a file before and after a patch: ``gone`` are statements that it drops,
    ``splices`` what it writes elsewhere.
    """

    def __init__(
        self, module: Module, splices: Sequence[Splice], *, keep_imports: bool = False
    ) -> None:
        self._module = module
        self._cuts = [(splice.start, splice.end) for splice in splices if splice.end > splice.start]
        self._written = frozenset(
            word for splice in splices for word in re.findall(r"(?<![.\w])[^\W\d]\w*", splice.text)
        )
        self._keep_imports = keep_imports
        self._names = [node for node in module.parents if isinstance(node, ast.Name)]
        self._strings = frozenset(_strings(module))
        called = (node.func for node in module.parents if isinstance(node, ast.Call))
        self._hidden = any(
            isinstance(callee, ast.Name) and callee.id in _BY_NAME for callee in called
        )  # not model.eval()

    def unread(self, gone: set[ast.stmt]) -> Unused:
        """What may go beside the statements, because they and the splices took away all that read
        it.
        """
        found = Unused()
        if self._hidden:
            return found
        lost = [
            node
            for node in self._names
            if isinstance(node.ctx, ast.Load) and self._is_gone(node, gone)
        ]
        for name, scope in dict.fromkeys((node.id, self._scope(node, node.id)) for node in lost):
            if name not in self._written and name not in self._strings:
                self._take(found, name, scope, gone)
        return found

    def _take(self, found: Unused, name: str, scope: ast.AST, gone: set[ast.stmt]) -> None:
        bindings: list[ast.stmt | ast.alias] = []
        for node in ast.walk(scope):
            if node is scope or not _mentions(node, name) or self._is_gone(node, gone):
                continue
            binding = self._binding(node, scope, gone)
            if binding is None:
                return  # it is read, or bound by what has to stay
            bindings.append(binding)
        for binding in bindings:
            if isinstance(binding, ast.stmt):
                found.statements.add(binding)
            else:
                found.names.setdefault(self._module.parents[binding], set()).add(binding)  # type: ignore[arg-type]
        for statement, names in list(found.names.items()):
            if len(names) == len(statement.names):
                found.statements.add(statement)
                del found.names[statement]

    def _binding(
        self, node: ast.AST, scope: ast.AST, gone: set[ast.stmt]
    ) -> ast.stmt | ast.alias | None:
        """What binds the name here and may go; None for anything else."""
        parent = self._module.parents[node]
        if isinstance(node, ast.alias) and isinstance(parent, _IMPORTS):
            return node if self._import_may_go(parent, gone) else None
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
            return None
        plain = (isinstance(parent, ast.Assign) and parent.targets == [node]) or (
            isinstance(parent, ast.AnnAssign) and parent.target is node
        )
        if not plain or not self._leaves_something(parent, gone):  # type: ignore[arg-type]
            return None
        value = parent.value  # type: ignore[attr-defined]
        if value is None or writes(value, asks=True) is not None:
            return None
        return parent if isinstance(scope, _FUNCTIONS) or self._is_script else None  # type: ignore[return-value]

    def _import_may_go(self, statement: Import, gone: set[ast.stmt]) -> bool:
        owner = self._module.parents[statement]
        if self._keep_imports or not isinstance(
            owner, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)
        ):
            return False  # under a condition, or tried: what else hangs on it is not known
        rows = self._module.source.lines[statement.lineno - 1 : statement.end_lineno]
        if any("noqa" in row for row in rows) or not self._leaves_something(statement, gone):
            return False
        if isinstance(statement, ast.ImportFrom):
            known = (
                not statement.level and str(statement.module).partition(".")[0] in _NEVER_LEANED_ON
            )
            return known and statement.module != "__future__"
        return all(item.name.partition(".")[0] in _NEVER_LEANED_ON for item in statement.names)

    def _leaves_something(self, statement: ast.stmt, gone: set[ast.stmt]) -> bool:
        """True if the statement's block would not be left empty without it."""
        owner = self._module.parents[statement]
        if isinstance(owner, ast.Module):
            return True
        blocks = (
            value
            for _, value in ast.iter_fields(owner)
            if isinstance(value, list) and statement in value
        )
        return any(
            other is not statement and other not in gone for block in blocks for other in block
        )

    @property
    def _is_script(self) -> bool:
        """True for a file that runs a loop, or asks whether it is the main program: nobody imports
        its variables.
        """
        top = [
            node for statement in self._module.tree.body for node in _outside_functions(statement)
        ]
        return any(isinstance(node, (ast.For, ast.While)) or _asks_for_main(node) for node in top)

    def _scope(self, node: ast.AST, name: str) -> ast.AST:
        """The innermost function around the node that binds the name; the module if none does."""
        for up in self._module.ancestors(node):
            if isinstance(up, _FUNCTIONS) and any(
                _binds(inner, name) for inner in ast.walk(up) if inner is not up
            ):
                return up
        return self._module.tree

    def _is_gone(self, node: ast.AST, gone: set[ast.stmt]) -> bool:
        if any(up in gone for up in (node, *self._module.ancestors(node))):
            return True
        if not hasattr(node, "end_col_offset"):
            return False
        start, end = self._module.source.span(node)
        return any(first <= start and end <= last for first, last in self._cuts)


def is_package(file: str) -> bool:
    """True of an ``__init__.py``: what it imports, others import from it."""
    return posixpath.basename(file.replace("\\", "/")) == "__init__.py"


def _mentions(node: ast.AST, name: str) -> bool:
    """True if the node reads or binds the name, in whatever way."""
    if isinstance(node, ast.Name):
        return node.id == name
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == name
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        return name in node.names
    bound = (getattr(node, each, None) for each in ("arg", "name", "rest"))
    return not isinstance(node, ast.keyword) and name in bound


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    return not isinstance(node, ast.Global) and _mentions(node, name)


def _strings(module: Module) -> Iterator[str]:
    """Names that strings hold: in ``__all__``, for ``getattr``, in annotations. Other text is no
    name.
    """
    for node in module.parents:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 200:
            if node.value.isidentifier():
                yield node.value
            elif _is_annotation(module, node):
                yield from re.findall(r"[^\W\d]\w*", node.value)


def _is_annotation(module: Module, node: ast.AST) -> bool:
    below = node
    for up in module.ancestors(node):
        if below in (getattr(up, "annotation", None), getattr(up, "returns", None)):
            return True
        below = up
        if isinstance(up, ast.stmt):
            return False
    return False


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    pending = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.stmt, ast.ExceptHandler)) and not isinstance(
            node, (*_FUNCTIONS, ast.ClassDef)
        ):
            yield node
            pending += ast.iter_child_nodes(node)


def _asks_for_main(node: ast.AST) -> bool:
    if not isinstance(node, ast.If) or not isinstance(node.test, ast.Compare):
        return False
    return isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
