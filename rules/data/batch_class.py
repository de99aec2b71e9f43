"""The user's own class of a loader's batches, where ``pin_memory=True`` passes over it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from auditor.evidence.source.files import Function, Source, name_of, unparsed
from auditor.model import Site

PLAIN = frozenset({"object", "Generic", "ABC"})
"""Bases that bring no ``pin_memory`` and make the class no container."""


@dataclass(frozen=True)
class BatchClass:
    """A class whose objects torch does not pin: no tensor, container or named tuple, and without a
    ``pin_memory`` of its own.
    """

    name: str
    site: Site


def unpinned_class(source: Source, collate: str) -> BatchClass | None:
    """What the collate function of this qualified name returns, where that is one such class of the
    program's (or where the function is the class itself); else None.
    """
    name = collate.rpartition(".")[2]
    classes: dict[str, tuple[str, ast.ClassDef]] = {}
    returned: set[str] = set()
    for file in source.texts:
        for node in source.nodes(file):
            if isinstance(node, ast.ClassDef):
                classes[node.name] = (file, node)
            elif isinstance(node, Function) and node.name == name:
                returned |= {
                    _made_by(each.value, node)
                    for each in ast.walk(node)
                    if isinstance(each, ast.Return)
                }
    made = returned or {name}
    file, found = classes.get(made.pop(), ("", None)) if len(made) == 1 else ("", None)
    if found is None or not _is_passed_over(found):
        return None
    return BatchClass(found.name, source.site_of(file, found))


def _made_by(value: ast.expr | None, function: ast.AST) -> str:
    """The class that a returned value is an object of, as far as one line shows it."""
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            and any(unparsed(each) == value.id for each in node.targets)
        ]
        value = given[0] if len(given) == 1 else None
    return name_of(value.func) if isinstance(value, ast.Call) else ""


def _is_passed_over(found: ast.ClassDef) -> bool:
    bases = {
        name_of(base.value if isinstance(base, ast.Subscript) else base) for base in found.bases
    }
    methods = {node.name for node in found.body if isinstance(node, Function)}
    return bases <= PLAIN and not methods & {"pin_memory", "__getattr__", "__getattribute__"}
