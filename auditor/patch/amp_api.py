"""Replaces the deprecated classes of ``torch.cuda.amp`` by those of ``torch.amp``, which take the
device as first argument.
"""

from __future__ import annotations

import ast
from functools import partial

from auditor.model import Edit
from auditor.patch.arguments import read_arguments
from auditor.patch.insert import binds_torch
from auditor.patch.module import Change, Module
from auditor.patch.source import Refused, Splice, parse_expression

_OLD_HOME = "torch.cuda.amp"
_NEW = {"autocast": "torch.amp.autocast", "GradScaler": "torch.amp.GradScaler"}
_DEVICE = "cuda"


def modernize_amp(module: Module, call: ast.Call, edit: Edit) -> Change:
    """The change from ``torch.cuda.amp.autocast(...)`` to ``torch.amp.autocast("cuda", ...)``.
    Raises :class:`Refused`.
    """
    new = _NEW.get(edit.call)
    if new is None:
        raise Refused(f"`{edit.call}` has no successor that is known")
    if not _is_old(module, call.func, edit.call):
        raise Refused(
            f"where `{edit.call}` is imported from is not visible, or it is not {_OLD_HOME}"
        )
    if edit.call == "autocast" and call.args:
        raise Refused("its arguments are not named, and their order has changed")
    if not any(map(binds_torch, module.tree.body)):
        raise Refused("the file lacks `import torch`")
    opened = read_arguments(module.source, call).opened
    comma = _comma(module.source.text[opened:], arguments=bool(call.args or call.keywords))
    splices = (
        Splice(*module.source.span(call.func), new),
        Splice(opened, opened, f'"{_DEVICE}"{comma}'),
    )
    return Change(splices, partial(_rewrite, call, parse_expression(new)))


def _comma(rest: str, *, arguments: bool) -> str:
    if not arguments:
        return ""
    return "," if rest.startswith("\n") else ", "


def _rewrite(call: ast.Call, callee: ast.expr) -> None:
    call.func = callee
    call.args.insert(0, ast.Constant(value=_DEVICE))


def _is_old(module: Module, callee: ast.expr, name: str) -> bool:
    """True if the callee is the class of ``torch.cuda.amp``, by its full name or as the file's
    imports bind it.
    """
    written = ast.unparse(callee)
    known = {f"{_OLD_HOME}.{name}"}
    for node in module.parents:
        if isinstance(node, ast.ImportFrom) and not node.level:
            for item in node.names:
                if f"{node.module}.{item.name}" == f"{_OLD_HOME}.{name}":
                    known.add(item.asname or item.name)
                elif f"{node.module}.{item.name}" == _OLD_HOME:
                    known.add(f"{item.asname or item.name}.{name}")
    return written in known and not _bound_elsewhere(module, callee)


def _bound_elsewhere(module: Module, callee: ast.expr) -> bool:
    """True if the file also imports or assigns the first name of the callee otherwise: which one is
    called is not known.
    """
    while isinstance(callee, ast.Attribute):
        callee = callee.value
    if not isinstance(callee, ast.Name):
        return True
    return any(_binds_otherwise(node, callee.id) for node in module.parents)


def _binds_otherwise(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id == name and not isinstance(node.ctx, ast.Load)
    if not isinstance(node, ast.ImportFrom) or node.module in (
        _OLD_HOME,
        _OLD_HOME.rpartition(".")[0],
    ):
        return False
    return any((item.asname or item.name) == name for item in node.names)
