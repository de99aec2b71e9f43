"""Where the program makes the float64 tensors that its step uses: NumPy's arrays, whose default is
float64, made to tensors without a dtype.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from auditor.evidence.source.files import Function, Index, Source, lines_of, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import names_in, nodes_in

Width = Literal["wide", "narrow", "unknown"]

TENSORS = frozenset({"from_numpy", "tensor", "as_tensor", "asarray", "Tensor"})
MAKES_WIDE = frozenset(
    """
    hanning hamming blackman kaiser bartlett linspace logspace zeros ones eye full empty rand randn
    random normal uniform standard_normal exponential beta gamma laplace lognormal random_sample
    to_numpy genfromtxt loadtxt
    """.split()
)
"""Calls of NumPy's and pandas' whose result is float64 unless they are told otherwise."""

MAKES_WHOLE = frozenset({"integers", "randint", "permutation", "argmax", "argsort", "arange"})
KEEPS = frozenset(
    """
    array asarray ascontiguousarray stack concatenate vstack hstack copy reshape transpose ravel
    flatten squeeze clip abs sqrt exp log mean std sum where
    """.split()
)
"""Calls whose result is as wide as what they are given."""

NARROWS = frozenset(
    "float half bfloat16 long int bool short float32 float16 FloatTensor HalfTensor".split()
)
WIDE_NAMES = re.compile(r"\b(float64|double)\b|^float$|^'(float64|f8|d)'$|^\"(float64|f8|d)\"$")
CONVERTS = frozenset({"to", "type"})
REGISTERS = frozenset({"register_buffer", "register_parameter"})


@dataclass(frozen=True)
class Origin:
    """A call that makes a float64 tensor. ``names``: what its result is called, of a variable in
    the lines of ``known`` alone (None: in the whole file), with a dot before it of an attribute.
    """

    site: Site
    width: Width
    names: frozenset[str] = frozenset()
    known: range | None = None

    def is_used_at(self, site: Site) -> bool:
        """One of its names stands on the line."""
        here = site.file == self.site.file and (self.known is None or site.line in self.known)
        return any(
            re.search(rf"{re.escape(name)}\b", site.text)
            if name.startswith(".")
            else here and re.search(rf"(?<![\w.]){re.escape(name)}\b", site.text)
            for name in self.names
        )


def double_origins(source: Source) -> tuple[Origin, ...]:
    """Calls of ``torch.from_numpy``, ``torch.tensor`` and the like whose result nothing narrows and
    whose array is float64, or of a dtype that the source does not show.
    """
    return tuple(
        origin
        for file, text in source.texts.items()
        if "from_numpy" in text or "tensor(" in text or "float64" in text or "double" in text
        for origin in _of_file(source, file)
    )


def origin_of(site: Site, origins: Iterable[Origin]) -> Site | None:
    """The one call that made what is first used on the site's line: by its name, or because there
    is no other; None where that is not clear.
    """
    known = list(origins)
    if any((each.site.file, each.site.line) == (site.file, site.line) for each in known):
        return None
    for chosen in (
        [each for each in known if each.width == "wide" and each.is_used_at(site)],
        [each for each in known if each.width == "wide"],
        known,
    ):
        lines = {(each.site.file, each.site.line): each.site for each in chosen}
        if len(lines) == 1:
            return next(iter(lines.values()))
        if lines:
            return None
    return None


def origin_of_cast(source: Source, origins: Iterable[Origin]) -> tuple[Site, Site] | None:
    """The one call that made the array to whose dtype something is cast (``.to(array.dtype)``), and
    the line of the cast; None where that is not one.
    """
    known = list(origins)
    found = {
        (origin.site, source.site_of(file, call))
        for file, call in source.calls_of(*CONVERTS)
        for name in _dtypes_of(call)
        for origin in known
        if name in origin.names and _reaches(origin, file, call.lineno)
    }
    return next(iter(found)) if len(found) == 1 else None


def _dtypes_of(call: ast.Call) -> Iterator[str]:
    """Names of what a call is given the dtype of, an attribute with a dot before it."""
    for value in (*call.args, *(each.value for each in call.keywords)):
        if isinstance(value, ast.Attribute) and value.attr == "dtype":
            owner = value.value
            if isinstance(owner, ast.Name):
                yield owner.id
            elif isinstance(owner, ast.Attribute):
                yield f".{owner.attr}"


def _reaches(origin: Origin, file: str, line: int) -> bool:
    return file == origin.site.file and (origin.known is None or line in origin.known)


def _of_file(source: Source, file: str) -> Iterator[Origin]:
    index = source.index(file)
    for node in index.of(ast.Call):
        if name_of(node.func) == "set_default_dtype" and "64" in unparsed(node):
            yield Origin(source.site_of(file, node), "wide")
        if not _is_torch(node):
            continue
        width = _tensor_width(node, index)
        if width != "narrow" and not _narrowed(node, index):
            names = frozenset(_names(node, index))
            yield Origin(source.site_of(file, node), width, names, _lines_of(node, index))


def _is_torch(call: ast.Call) -> bool:
    """``torch.from_numpy(..)``, or a factory of torch's that is asked for float64."""
    if not isinstance(call.func, ast.Attribute):
        return name_of(call.func) == "from_numpy"
    if not isinstance(call.func.value, ast.Name) or call.func.value.id != "torch":
        return False
    return call.func.attr in TENSORS - {"Tensor"} or _dtype(call) is not None


def _dtype(call: ast.Call) -> str | None:
    return next((unparsed(each.value) for each in call.keywords if each.arg == "dtype"), None)


def _tensor_width(call: ast.Call, index: Index) -> Width:
    asked = _dtype(call)
    if asked is not None:
        return "wide" if WIDE_NAMES.search(asked) else "narrow"
    if not call.args:
        return "narrow"
    width = _width(call.args[0], index, 8)
    if width == "unknown" and name_of(call.func) != "from_numpy":
        return "unknown" if _speaks_of_arrays(call.args[0]) else "narrow"
    return width


def _speaks_of_arrays(value: ast.expr) -> bool:
    return bool(names_in(value) & {"np", "numpy"})


def _width(value: ast.expr, index: Index, depth: int) -> Width:
    """How wide the numbers of an expression are."""
    if depth <= 0:
        return "unknown"
    if isinstance(value, ast.Call):
        return _call_width(value, index, depth)
    if isinstance(value, ast.BinOp):
        sides = [_width(each, index, depth - 1) for each in (value.left, value.right)]
        sides = [
            side
            for side, each in zip(sides, (value.left, value.right), strict=True)
            if not isinstance(each, ast.Constant)
        ]
        return _widest(sides)
    if isinstance(value, ast.Subscript | ast.UnaryOp | ast.Starred):
        inner = value.operand if isinstance(value, ast.UnaryOp) else value.value
        return _width(inner, index, depth - 1)
    if isinstance(value, ast.Attribute) and value.attr in ("values", "T"):
        inside = _width(value.value, index, depth - 1)
        return "wide" if value.attr == "values" and inside == "unknown" else inside
    if isinstance(value, ast.Name | ast.Attribute):
        given = _assigned(value, index)
        return "unknown" if given is None else _width(given, index, depth - 1)
    if isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.ListComp):
        return "narrow"  # torch takes Python's own numbers at its default dtype
    return "unknown"


def _call_width(call: ast.Call, index: Index, depth: int) -> Width:
    name, asked = name_of(call.func), _dtype(call)
    if name == "astype" and call.args:
        asked = unparsed(call.args[0])
    if asked is not None:
        return "wide" if WIDE_NAMES.search(asked) else "narrow"
    if name in NARROWS or name in MAKES_WHOLE:
        return "narrow"
    if name in MAKES_WIDE:
        return "wide" if not _of_torch(call) else "narrow"
    if name in KEEPS:
        inner = call.args[:1]
        if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value):
            inner = [call.func.value]
        if inner and isinstance(inner[0], ast.List | ast.ListComp | ast.Tuple | ast.GeneratorExp):
            return _elements(inner[0], index, depth)
        return _width(inner[0], index, depth - 1) if inner else "unknown"
    return "unknown"


def _elements(
    value: ast.List | ast.ListComp | ast.Tuple | ast.GeneratorExp,
    index: Index,
    depth: int,
) -> Width:
    """Of the array that NumPy makes of a list: Python's floats become float64."""
    inner = [value.elt] if isinstance(value, ast.ListComp | ast.GeneratorExp) else value.elts
    if any(isinstance(each, ast.Constant) and isinstance(each.value, float) for each in inner):
        return "wide"
    return _widest([_width(each, index, depth - 1) for each in inner])


def _widest(widths: list[Width]) -> Width:
    for each in ("wide", "unknown"):
        if each in widths:
            return "wide" if each == "wide" else "unknown"
    return "narrow"


def _is_module(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("np", "numpy", "torch")


def _of_torch(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and unparsed(call.func.value) == "torch"


def _assigned(value: ast.Name | ast.Attribute, index: Index) -> ast.expr | None:
    """What a name was given last before it is read in its function or else in its file, and an
    attribute anywhere in its class.
    """
    wanted = unparsed(value)
    homes = ast.ClassDef if isinstance(value, ast.Attribute) else Function
    for scope in index.up(value):
        if isinstance(scope, homes | ast.Module):
            within = None if isinstance(scope, ast.Module) else lines_of(scope)
            found = [
                node
                for node in index.assigned.get(wanted, ())
                if (within is None or node.lineno in within)
                and node.value is not value
                and (isinstance(value, ast.Attribute) or node.lineno < value.lineno)
            ]
            if found:
                return max(found, key=lambda node: node.lineno).value
    return None


def _narrowed(call: ast.Call, index: Index) -> bool:
    """``.float()``, ``.to(torch.float32)`` or ``dtype=`` behind the call, in the same
    expression.
    """
    node: ast.AST = call
    while isinstance(above := index.parents.get(node), ast.Attribute | ast.Call | ast.Subscript):
        if isinstance(above, ast.Call) and above.func is node:
            name = name_of(above.func)
            given = [unparsed(each) for each in above.args] + [_dtype(above) or ""]
            kinds = [each for each in given if "torch." in each and "device" not in each]
            if name in NARROWS or (name in CONVERTS and any(map(_is_narrow, kinds))):
                return True
        elif isinstance(above, ast.Call) and name_of(above.func) in NARROWS:
            return True
        node = above
    return False


def _is_narrow(kind: str) -> bool:
    return not WIDE_NAMES.search(kind)


def _names(call: ast.Call, index: Index) -> Iterator[str]:
    """Variables and attributes that the result goes to, and the name of a buffer."""
    for node in (call, *index.up(call)):
        if isinstance(node, ast.stmt):
            break
        if isinstance(node, ast.Call) and name_of(node.func) in REGISTERS:
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from (f".{text}" for text in texts if isinstance(text, str))
    if isinstance(node, ast.Assign):
        for each in nodes_in(node.targets, ast.Attribute, ast.Name):
            if isinstance(each, ast.Attribute):
                yield f".{each.attr}"
            elif isinstance(each.ctx, ast.Store):
                yield each.id


def _lines_of(call: ast.Call, index: Index) -> range | None:
    """Lines of the innermost function around the call."""
    scope = index.scope_of(call)
    return lines_of(scope) if isinstance(scope, Function) else None
