"""Changes the number or flag that a line gives to a name: ``num_workers = 0``, ``pin_memory: bool =
False``.
"""

from __future__ import annotations

import ast
import re
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, covers, last_name, span_of
from auditor.patch.source import Refused, Splice, parse_expression

_PLAIN = re.compile(r"\d{1,18}|True|False")


def constant_on_line(module: Module, edit: Edit) -> ast.Constant:
    """The literal that the edit's line gives to the name ``keyword``, or that stands at ``span``.
    Raises :class:`Refused`.
    """
    if not _PLAIN.fullmatch(edit.value):
        raise Refused(f"`{edit.value}` is not a whole number, True or False")
    found: list[ast.expr | None]
    if edit.span is not None:
        found = [
            node
            for node in module.parents
            if isinstance(node, ast.Constant) and span_of(node) == edit.span
        ]
    else:
        found = [
            node.value
            for node in module.parents
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _gives(node, edit)
        ]
    if (
        len(found) != 1
        or not isinstance(found[0], ast.Constant)
        or not isinstance(found[0].value, int)
    ):
        raise Refused(f"line {edit.site.line} does not give `{edit.keyword}` a number or flag")
    if repr(found[0].value) == edit.value:
        raise Refused(f"`{edit.keyword}` is already {edit.value}")
    return found[0]


def set_constant(module: Module, old: ast.Constant, text: str) -> Change:
    """The change of one literal."""
    return Change(
        (Splice(*module.source.span(old), text),),
        partial(module.replace, old, parse_expression(text)),
    )


def _gives(node: ast.Assign | ast.AnnAssign, edit: Edit) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return covers(node, edit.site.line) and any(
        last_name(target) == edit.keyword for target in targets
    )
