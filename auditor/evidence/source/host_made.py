"""Where the host makes what a line moves to the device: out of sizes, numbers and chance alone, so
that the device could make it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from auditor.evidence.source.files import Source, Span, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import Index, nodes_in
from auditor.syntax.reaching import given_for
from auditor.syntax.tensor_factories import FACTORIES, KEEPING, made_for

DRAWS = frozenset(each for each in FACTORIES if each.startswith(("rand", "normal")))
SHAPED = KEEPING | {"repeat", "permute", "expand_as", "to", "type", "contiguous", "chunk", "split"}
"""Methods whose arguments are no part of the values."""
DEEPEST = 8
"""Names, functions and operators that are followed, one inside the other."""


class Made(NamedTuple):
    """The lines that make it, and names of the functions of torch that do. ``patched``: of the one
    that ``make_on_device`` can give the device to; empty where there is none.
    """

    sites: tuple[Site, ...]
    names: tuple[str, ...]
    patched: str = ""

    @property
    def drawn(self) -> bool:
        """Whether some of it is random."""
        return not DRAWS.isdisjoint(self.names)


def host_made(source: Source, site: Site, span: Span | None) -> Made | None:
    """What makes the tensor that the call at ``span`` on the site's line moves (``x.to(device)``); None
    if it holds more than that.
    """
    move = source.node_at(site.file, span) if span is not None else None
    if not isinstance(move, ast.Call) or not isinstance(move.func, ast.Attribute):
        return None
    index = source.index(site.file)
    found = _makers(index, move.func.value, DEEPEST)
    if not found:
        return None
    lines = {call.lineno: source.site_of(site.file, call) for call in found}
    whole = made_for(move, index.parents)
    patched = name_of(whole.func) if whole in found and len(found) == 1 else ""
    return Made(tuple(lines.values()), tuple(dict.fromkeys(map(_name, found))), patched)


def _name(call: ast.Call) -> str:
    return name_of(call.func)


def _makers(index: Index, value: ast.expr | None, depth: int) -> list[ast.Call] | None:
    """The factories' calls in an expression of nothing but these and numbers; None of any other."""
    if depth <= 0 or value is None:
        return None
    if isinstance(value, ast.Constant):
        return []
    if isinstance(value, ast.Name):
        given = given_for(value, index.parents)
        return None if given is None else _makers(index, given.value, depth - 1)
    if isinstance(value, ast.BinOp):
        return _all(index, (value.left, value.right), depth)
    if isinstance(value, ast.Compare):
        return _all(index, (value.left, *value.comparators), depth)
    if isinstance(value, ast.UnaryOp):
        return _makers(index, value.operand, depth - 1)
    if isinstance(value, ast.Subscript):
        return _makers(index, value.value, depth - 1)
    if isinstance(value, ast.List | ast.Tuple):
        return _all(index, value.elts, depth)
    return _called(index, value, depth) if isinstance(value, ast.Call) else None


def _all(index: Index, values: Iterable[ast.expr], depth: int) -> list[ast.Call] | None:
    found: list[ast.Call] = []
    for each in values:
        inside = _makers(index, each, depth - 1)
        if inside is None:
            return None
        found += inside
    return found


def _called(index: Index, call: ast.Call, depth: int) -> list[ast.Call] | None:
    function, name = call.func, name_of(call.func)
    if isinstance(function, ast.Attribute) and name_of(function.value) == "torch":
        if name in FACTORIES:
            if any(each.arg == "device" for each in call.keywords):
                return None
            of_tensors = name == "normal" and len(call.args) < 3
            return [call] if not of_tensors or _all(index, call.args, depth) is not None else None
        return _all(index, call.args, depth)
    own = index.functions_named.get(name, ())
    if len(own) == 1 and unparsed(function) in (name, f"self.{name}"):
        returned = list(nodes_in(own[0], ast.Return))
        return _makers(index, returned[0].value, depth - 1) if len(returned) == 1 else None
    if not isinstance(function, ast.Attribute):
        return None
    given = () if name in SHAPED else call.args
    return _all(index, (function.value, *given), depth)
