"""Losses in the source, written as they should be."""

import ast
from collections.abc import Callable, Collection

from auditor.evidence.source.files import Source, name_of, span_of, the_only
from auditor.model import Edit, Site

COLUMNS = ("unsqueeze(-1)", "squeeze(-1)")
"""What gives a target the shape of the model's output."""


def reshaped(call: ast.Call) -> Collection[str]:
    """``mse_loss(out, y)`` with either column form of its second argument."""
    if len(call.args) < 2 or _is_kept(call):
        return ()
    target = ast.unparse(call.args[1])
    if not isinstance(call.args[1], ast.Name | ast.Call | ast.Attribute | ast.Subscript):
        target = f"({target})"
    return tuple(_written(call, 1, f"{target}.{column}") for column in COLUMNS)


def without_activation(call: ast.Call) -> Collection[str]:
    """``cross_entropy(torch.softmax(out, 1), y)`` as ``cross_entropy(out, y)``."""
    inner = call.args[0] if call.args else None
    if not isinstance(inner, ast.Call) or _is_kept(call):
        return ()
    if name_of(inner.func) not in ("softmax", "sigmoid") or _is_kept(inner):
        return ()
    own = inner.func.value if isinstance(inner.func, ast.Attribute) else None
    if own is None or _is_module(own):
        given = inner.args[0] if inner.args else None
    else:
        given = own if all(map(_is_number, inner.args)) else None  # not ``self.softmax(out)``
    return () if given is None else (_written(call, 0, ast.unparse(given)),)


def of_logarithm(call: ast.Call) -> Collection[str]:
    """``torch.softmax(out, 1)`` as ``log_softmax(out, 1)``."""
    if not call.args or _is_kept(call):
        return ()
    return (_written(call, 0, ast.unparse(call.args[0]), "log_softmax"),)


def rewritten(
    source: Source,
    site: Site,
    function: str,
    forms: Callable[[ast.Call], Collection[str]],
    reason: str,
    *,
    index: int = 0,
) -> Edit | None:
    """The edit that writes the one call of ``function`` on the site's line in one of its ``forms``.

    None if part of it stands on another line, or in other words than ``ast`` gives it.
    """
    call = the_only(each for each in source.calls_at(site) if name_of(each.func) == function)
    texts = () if call is None else tuple(forms(call))
    if call is None or len(texts) <= index:
        return None
    line = _packed(site.text)
    given = [*call.args, *(each.value for each in call.keywords)]
    if not all(_packed(ast.unparse(each)) in line for each in given):
        return None
    return Edit(
        site, "rename_call", function, value=texts[index], reason=reason, span=span_of(call)
    )


def _packed(text: str) -> str:
    return "".join(text.split())


def _written(call: ast.Call, index: int, argument: str, name: str = "") -> str:
    texts = [ast.unparse(each) for each in call.args]
    texts[index] = argument
    texts += [f"{each.arg}={ast.unparse(each.value)}" for each in call.keywords]
    return f"{name or name_of(call.func)}({', '.join(texts)})"


def _is_kept(call: ast.Call) -> bool:
    """True of a call that is not rewritten: it unpacks, or a text would get other quotes."""
    given = [*call.args, *(each.value for each in call.keywords)]
    return any(each.arg is None for each in call.keywords) or any(
        isinstance(each, ast.Starred)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in given
    )


def _is_number(node: ast.expr) -> bool:
    return isinstance(node.operand if isinstance(node, ast.UnaryOp) else node, ast.Constant)


def _is_module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "F", "nn.functional", "torch.nn.functional", "functional")
