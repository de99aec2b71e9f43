"""Which of the user's containers some line cuts, empties or begins anew."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from auditor.evidence.source.files import Source

CUTS = frozenset(
    ("clear", "pop", "popitem", "popleft", "remove", "truncate", "resize_", "rotate", "discard")
)
"""Methods that take something out of a container."""

ONCE = frozenset(("", "main", "__init__", "__post_init__", "setup", "build"))
"""Functions that run once; the empty name stands for the file itself."""


class Bounds:
    """By the last name of the expression: ``history`` of ``self.history[name]``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cut: dict[str, frozenset[str]] = {}

    def cut(self, file: str, name: str) -> bool:
        """Whether a line of the file cuts what is called so (``self.seen[*]``)."""
        if file not in self._source.texts:
            return True  # it cannot be told
        if file not in self._cut:
            tree = next(
                (node for node in self._source.nodes(file) if isinstance(node, ast.Module)), None
            )
            self._cut[file] = frozenset(_cut(tree, "")) if tree is not None else frozenset()
        return re.split(r"\W+", name.split("[", 1)[0])[-1] in self._cut[file]


def _cut(node: ast.AST, function: str) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        function = node.name
    yield from _names(node, once=function in ONCE)
    for child in ast.iter_child_nodes(node):
        yield from _cut(child, function)


def _names(node: ast.AST, *, once: bool) -> Iterator[str]:
    if isinstance(node, ast.Delete):
        yield from (_last(target) for target in node.targets)
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in CUTS:
            yield _last(node.func.value)
    elif isinstance(node, (ast.Assign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for each in ast.walk(target):
                if isinstance(each, (ast.Name, ast.Attribute, ast.Subscript)) and (
                    not once or isinstance(each, ast.Subscript) or _has_a_limit(node.value)
                ):
                    yield _last(each)


def _has_a_limit(value: ast.expr | None) -> bool:
    """``deque(maxlen=100)``, ``LRUCache(100)``: nothing but the plain containers has none."""
    if isinstance(value, ast.Call):
        return not (
            _last(value.func) in ("list", "dict", "set", "defaultdict", "OrderedDict", "Counter")
            or (_last(value.func) == "deque" and len(value.args) < 2 and not value.keywords)
        )
    return not isinstance(
        value, (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Set, ast.Tuple, type(None))
    )


def _last(node: ast.expr) -> str:
    """The last name: ``history`` of ``self.history[name]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
