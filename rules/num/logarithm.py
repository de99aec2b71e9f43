"""Logarithms of probabilities in the source: the call on a line, and its stable function."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of, span_of, the_only
from auditor.model import Edit, Site

STABLE = {"sigmoid": "nn.functional.logsigmoid", "softmax": "log_softmax"}
"""By what is undone: the function below ``torch`` that computes both at once."""

REASON = "the same in exact arithmetic; where the old one rounds to 0 or is -inf, this one is right"


@dataclass(frozen=True)
class StableLog:
    """``torch.log(torch.sigmoid(x) + eps)`` and what to write after ``torch.`` in its place."""

    call: ast.Call
    value: str

    def edit(self, site: Site) -> Edit:
        """The edit that replaces the whole call."""
        node = self.call
        return Edit(
            site,
            "rename_call",
            name_of(node.func),
            value=self.value,
            reason=REASON,
            span=span_of(node),
        )


def stable_log(source: Source, site: Site, *, cast: bool = False) -> StableLog | None:
    """The one on the site's line; None where it is not written as one expression of ``torch.log``.
    ``cast``: to float32.
    """
    for call in source.calls_at(site):
        of_torch = (
            isinstance(call.func, ast.Attribute)
            and isinstance(call.func.value, ast.Name)
            and call.func.value.id == "torch"
        )
        if of_torch and name_of(call.func) == "log" and len(call.args) == 1 and not call.keywords:
            value = _stable(call.args[0], cast=cast)
            if value is not None:
                return StableLog(call, value)
    return None


def _stable(inner: ast.expr, *, cast: bool) -> str | None:
    """``log_softmax(x, -1)`` for ``torch.softmax(x, -1) + 1e-8`` and for ``x.softmax(-1)``."""
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
        sides = (inner.left, inner.right)
        large = the_only(each for each in sides if not isinstance(each, ast.Constant))
        return _stable(large, cast=cast) if large is not None else None
    if not isinstance(inner, ast.Call) or name_of(inner.func) not in STABLE:
        return None
    function, given = inner.func, list(inner.args)
    if isinstance(function, ast.Attribute) and not _is_module(function.value):
        given.insert(0, function.value)
    if not given or any(isinstance(each, ast.Starred) for each in given):
        return None
    texts = [ast.unparse(each) for each in given]
    if cast:
        texts[0] = f"{texts[0] if _binds_tightly(given[0]) else f'({texts[0]})'}.float()"
    texts += [
        f"{each.arg}={ast.unparse(each.value)}" if each.arg else f"**{ast.unparse(each.value)}"
        for each in inner.keywords
    ]
    return f"{STABLE[name_of(function)]}({', '.join(texts)})"


def _is_module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "F", "nn.functional", "torch.nn.functional", "functional")


def _binds_tightly(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
