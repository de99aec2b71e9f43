"""By what name an expression asks for its value, and under what name an option's value is kept."""

from __future__ import annotations

import ast

from auditor.syntax.index import name_of

OPTIONS = frozenset({"add_argument", "option"})
"""Functions of argparse and click that declare an option with its ``default``."""

CASTS = frozenset({"int", "bool"})


def last_key(written: ast.expr) -> str:
    """By what name an expression asks for its value; empty if by none.

    ``num_workers`` of ``cfg.data.num_workers``, ``cfg["num_workers"]``,
    ``int(cfg.get("num_workers", 0))`` and ``num_workers``.
    """
    if isinstance(written, ast.Call):
        name = name_of(written.func)
        if name in CASTS and len(written.args) == 1:
            return last_key(written.args[0])
        return text_of(written.args[0]) if name == "get" and written.args else ""
    if isinstance(written, ast.Subscript):
        return text_of(written.slice)
    return name_of(written)


def kept_as(option: ast.Call) -> str:
    """Under which name the value of an option is kept: ``dest``, else its first long name."""
    given = next((text_of(item.value) for item in option.keywords if item.arg == "dest"), "")
    names = [text_of(each) for each in option.args]
    long = [name[2:].partition("/")[0].replace("-", "_") for name in names if name.startswith("--")]
    return given or next(iter(long), "")


def text_of(node: ast.expr) -> str:
    """The text of a string literal; empty for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
