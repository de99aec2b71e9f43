"""Makes a tensor where it is used: ``torch.zeros(n).to(device)`` becomes ``torch.zeros(n,
device=device)``, also below what keeps its place and values: ``torch.tril(torch.ones(n, n))``. What
has a name in between is made there and moved no more, and the line that moves it stays.
"""

from __future__ import annotations

import ast

from auditor.patch.keywords import KeywordEdits, change_keywords
from auditor.patch.module import Change, Module, last_name
from auditor.patch.source import Refused, Splice
from auditor.syntax.tensor_factories import FACTORIES, made_for

_MOVE_OPTIONS = frozenset({"device", "non_blocking"})


def make_on_device(module: Module, move: ast.Call) -> Change:
    """The change that hands the device to the function which makes the tensor. Raises
    :class:`Refused`.
    """
    made = _made(module, move)
    if module.quoted_in(move) is not None:
        raise Refused("the call stands inside an f-string")
    given = change_keywords(module, made, KeywordEdits(sets={"device": _device(module, move)}))
    receiver = move.func.value if isinstance(move.func, ast.Attribute) else move
    if isinstance(receiver, ast.Name):
        return given  # the move finds it there
    cut = Splice(module.source.span(receiver)[1], module.source.span(move)[1])
    gone = module.source.text[cut.start : cut.end]
    if not gone.lstrip(" \t\n\\").startswith(".") or "#" in gone:
        raise Refused("between the two calls stands more than a dot")

    def rewrite() -> None:
        given.rewrite()
        module.replace(move, receiver)

    return Change((*given.splices, cut), rewrite)


def _made(module: Module, move: ast.Call) -> ast.Call:
    """The call of a factory of torch that makes what is moved."""
    made = made_for(move, module.parents) if last_name(move.func) in ("to", "cuda") else None
    if made is None or last_name(made.func) not in FACTORIES:
        raise Refused("what is moved is not made by a function of torch that takes a device")
    if any(item.arg in ("device", "pin_memory", "out", "requires_grad") for item in made.keywords):
        raise Refused("the function is told more than that another device could keep")
    return made


def _device(module: Module, move: ast.Call) -> str:
    """The device that the move names, as written."""
    named = [*move.args, *(item.value for item in move.keywords if item.arg == "device")]
    if any(item.arg not in _MOVE_OPTIONS for item in move.keywords) or len(named) > 1:
        raise Refused("the move does more than name a device")
    if not named:
        if _is_cuda(move):
            return '"cuda"'
        raise Refused("the move names no device")
    if not _is_device(named[0]):
        raise Refused(f"`{module.source.code(named[0])}` may be something else than a device")
    return module.source.code(named[0])


def _is_cuda(move: ast.Call) -> bool:
    return isinstance(move.func, ast.Attribute) and move.func.attr == "cuda"


def _is_device(node: ast.expr) -> bool:
    """True for a name that ends in ``device``, for ``"cuda:0"``, and for ``torch.device(...)``: not
    for a dtype or another tensor.
    """
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.partition(":")[0] in ("cuda", "cpu")
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return str(name).lower().endswith("device")
