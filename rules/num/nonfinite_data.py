"""Where the program's own datasets, collate functions and transforms can make NaN or infinities, or
let missing values through.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from auditor.evidence.source.files import Function, Index, Source, name_of, unparsed
from auditor.model import Site
from auditor.syntax.index import called_in, names_in, nodes_in, parameters_of, targets_of

Kind = Literal["division", "logarithm", "missing", "written", "handed"]

SPREADS = frozenset({"std", "nanstd", "var", "ptp", "norm", "sum", "count_nonzero"})
"""What may be zero for a sample that is constant, or empty."""

LOGS = frozenset({"log", "log2", "log10", "sqrt", "logit"})
NUMPY_LOGS = frozenset(
    f"{module}.{name}" for module in ("np", "numpy") for name in ("log", "log2", "log10")
)
GUARDS = frozenset(
    "clip clamp clamp_ clamp_min maximum max where nan_to_num fillna replace isfinite isnan".split()
)
REPAIRS = re.compile(
    r"\b(fillna|dropna|nan_to_num|interpolate|isna|isnull|isnan|Imputer|ffill|bfill)"
)
READS = re.compile(r"\b(read_csv|read_table|read_parquet|read_excel|genfromtxt)\s*\(")
TENSORS = frozenset({"tensor", "as_tensor", "from_numpy", "FloatTensor", "Tensor"})
NOT_A_NUMBER = re.compile(
    r"^(float\(['\"]([+-]?inf|nan)['\"]\)|-?(np|numpy|math|torch)\.(nan|inf))$"
)


@dataclass(frozen=True)
class Leak:
    """A line that can make such a value, as ``text``; ``each``: of one sample or one batch, not of
    all the data at once.
    """

    site: Site
    kind: Kind
    text: str
    each: bool
    weak: bool = False
    """True of a division by any number of the data: it counts where nothing else can have made the
    value.
    """


def leak(source: Source, value: str, *, from_the_start: bool) -> Leak | None:
    """The one line that can have made ``value`` (``nan`` or ``inf``) in the data; None where there
    are several or none. ``from_the_start``: the first batch held it.
    """
    known = list(_leaks(source))
    made = [
        each
        for each in known
        if each.kind in ("division", "logarithm") and (each.each or from_the_start)
    ]
    made, weak = [each for each in made if not each.weak], [each for each in made if each.weak]
    missing = [each for each in known if each.kind == "missing" and value == "nan"]
    written = [each for each in known if each.kind == "written" and value in each.text.lower()]
    per_sample = [each for each in made if each.each]
    for chosen in (missing if not per_sample else [*missing, *per_sample], made, written, weak):
        lines = {(each.site.file, each.site.line): each for each in chosen}
        if lines:
            return next(iter(lines.values())) if len(lines) == 1 else None
    return None


def handed_on(source: Source, dataset: str) -> Leak | None:
    """Where the class of a dataset returns its samples; None where it is not one line of the
    program's.
    """
    found = {
        (file, node.lineno): source.site_of(file, node)
        for file, owner in source.every(ast.ClassDef)
        if owner.name == dataset
        for method in owner.body
        if isinstance(method, Function) and method.name in ("__getitem__", "__iter__")
        for node in nodes_in(method, ast.Return, ast.Yield)
        if node.value is not None
    }
    text = f"{dataset} hands it on here"
    return Leak(next(iter(found.values())), "handed", text, each=True) if len(found) == 1 else None


def prepared(source: Source) -> Leak | None:
    """The one logarithm of NumPy's that can have made minus infinity while the data were made;
    None where there are several or none.
    """
    found = {
        (file, node.lineno): Leak(
            source.site_of(file, node), "logarithm", unparsed(node), each=False
        )
        for file, function in source.functions
        for node in nodes_in(function, ast.Call)
        if unparsed(node.func) in NUMPY_LOGS and _is_bare(node, function)
    }
    return next(iter(found.values())) if len(found) == 1 else None


def _leaks(source: Source) -> Iterator[Leak]:
    for file, text in source.texts.items():
        index = source.index(file)
        collates = {
            name_of(each.value)
            for each in index.of(ast.keyword)
            if each.arg in ("collate_fn", "transform", "target_transform")
        }
        for function in set(_preparations(index, collates)):
            yield from _in_function(source, file, function)
            yield from _written(source, file, function)
        if READS.search(text) and not REPAIRS.search(text):
            yield from _missing(source, file)


def _preparations(index: Index, collates: set[str]) -> Iterator[ast.AST]:
    """Methods of datasets and transforms, collate functions, and what they call of this file."""
    functions = {node.name: node for node in index.functions}
    found = [node for name, node in functions.items() if name in collates or "collate" in name]
    for owner in filter(_prepares, index.of(ast.ClassDef)):
        found += [each for each in owner.body if isinstance(each, Function)]
    yield from found
    called = called_in(found)
    yield from (node for name, node in functions.items() if name in called and node not in found)


def _prepares(node: ast.ClassDef) -> bool:
    methods = {each.name for each in node.body if isinstance(each, Function)}
    bases = {name_of(base) for base in node.bases}
    return bool(methods & {"__getitem__", "__getitems__"}) or (
        bool(methods & {"__iter__", "__call__"}) and not bases & {"Module", "Sampler"}
    )


def _in_function(source: Source, file: str, function: ast.AST) -> Iterator[Leak]:
    once = getattr(function, "name", "") == "__init__"
    for node in nodes_in(function, ast.BinOp, ast.AugAssign, ast.Call):
        kind: Kind | None = None
        weak = False
        if isinstance(node, ast.Call):
            logs = name_of(node.func) in LOGS and _is_bare(node, function)
            kind = "logarithm" if logs else None
        elif isinstance(node.op, ast.Div):
            by = node.right if isinstance(node, ast.BinOp) else node.value
            weak = not _may_be_zero(by, function)
            kind = "division" if not weak or _is_data(by, function) else None
        if kind is not None:
            yield Leak(source.site_of(file, node), kind, unparsed(node), not once, weak)


def _may_be_zero(value: ast.expr, function: ast.AST, depth: int = 3) -> bool:
    """A spread or a difference (``high - low``) that nothing keeps from zero."""
    if depth <= 0 or _guarded(value):
        return False
    if isinstance(value, ast.Name | ast.Attribute):
        made = _given(value, function)
        return made is not None and _may_be_zero(made, function, depth - 1)
    if isinstance(value, ast.Call):
        return name_of(value.func) in SPREADS
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        said = unparsed(value).lower()
        return "max" in said and "min" in said
    return isinstance(value, ast.Subscript) and _may_be_zero(value.value, function, depth - 1)


def _is_data(value: ast.expr, function: ast.AST) -> bool:
    """Numbers that the function was given or has picked, with nothing done to them: no constant, no
    setting, no length.
    """
    if isinstance(value, ast.Subscript):
        return unparsed(value.value).rpartition(".")[2] not in ("shape", "size")
    if not isinstance(value, ast.Name) or value.id.isupper():
        return False
    made = _given(value, function)
    if made is not None:
        return isinstance(made, ast.Subscript) and _is_data(made, function)
    unpacked = names_in(_unpacked(function), ast.Store)
    given = parameters_of(function) if isinstance(function, Function) else ()
    return value.id in unpacked or value.id in given


def _unpacked(function: ast.AST) -> Iterator[ast.expr]:
    """Targets of ``a, b = ..``."""
    for node in nodes_in(function, ast.Assign):
        if not isinstance(node.value, ast.Tuple):
            yield from (each for each in node.targets if isinstance(each, ast.Tuple))


def _is_bare(call: ast.Call, function: ast.AST) -> bool:
    """Nothing keeps what the logarithm is given above zero."""
    own = isinstance(call.func, ast.Attribute) and unparsed(call.func.value) not in (
        "np",
        "numpy",
        "torch",
        "math",
    )
    given = call.func.value if own and isinstance(call.func, ast.Attribute) else None
    given = call.args[0] if given is None and call.args else given
    if given is None or isinstance(given, ast.Constant) or _guarded(given):
        return False
    if isinstance(given, ast.Name):
        made = _given(given, function)
        return made is None or not _guarded(made)
    return True


def _guarded(value: ast.expr) -> bool:
    """Something is added, or a bound is set."""
    return (
        any(nodes_in(value, ast.BoolOp, ast.IfExp))
        or any(isinstance(node.op, ast.Add) for node in nodes_in(value, ast.BinOp))
        or bool(called_in(value) & (GUARDS - {"max"}))
        or any(
            unparsed(call.func) == "max" and len(call.args) > 1
            for call in nodes_in(value, ast.Call)
        )
    )


def _given(value: ast.expr, function: ast.AST) -> ast.expr | None:
    """What the name was given last before the line in the function; None where that is not one
    plain value, or a later one changed it.
    """
    wanted = unparsed(value)
    found = [
        node
        for node in nodes_in(function, ast.Assign, ast.AugAssign)
        if node.lineno < value.lineno
        for target in targets_of(node)
        for each in (target.elts if isinstance(target, ast.Tuple) else [target])
        if unparsed(getattr(each, "value", each) if isinstance(each, ast.Subscript) else each)
        == wanted
    ]
    last = max(found, key=lambda node: node.lineno, default=None)
    if not isinstance(last, ast.Assign) or isinstance(last.targets[0], ast.Subscript):
        return None
    if isinstance(last.targets[0], ast.Tuple):
        names = [unparsed(each) for each in last.targets[0].elts]
        values = last.value.elts if isinstance(last.value, ast.Tuple) else []
        return values[names.index(wanted)] if len(values) == len(names) else None
    return last.value


def _missing(source: Source, file: str) -> Iterator[Leak]:
    """The tensors that are made of a table which was read and not searched for missing values."""
    for node in source.index(file).of(ast.Call):
        if name_of(node.func) in TENSORS and node.args:
            said = unparsed(node.args[0])
            if re.search(r"\.values\b|\.to_numpy\(|\bframe|\bdf\b", said) and not _is_whole(node):
                yield Leak(source.site_of(file, node), "missing", unparsed(node), each=True)


def _is_whole(call: ast.Call) -> bool:
    """It is asked for whole numbers, which cannot be missing, or for the label's column."""
    said = unparsed(call)
    return bool(re.search(r"int|long|bool|label|target|\.pop\(", said))


def _written(source: Source, file: str, function: ast.AST) -> Iterator[Leak]:
    for node in nodes_in(function, ast.Assign):
        written = isinstance(node.targets[0], ast.Subscript)
        if written and NOT_A_NUMBER.match(unparsed(node.value)):
            yield Leak(source.site_of(file, node), "written", unparsed(node), each=True)
