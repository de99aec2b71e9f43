"""Which statements do nothing but log: skipping one leaves the training as it is."""

from __future__ import annotations

import ast

from auditor.patch.module import last_name
from auditor.patch.source import Refused

_BARS = frozenset({"set_postfix", "set_postfix_str", "set_description", "set_description_str"})
_SCALARS = frozenset({"add_scalar", "add_scalars"})
_LEVELS = frozenset({"info", "debug"})
_TRACKERS = frozenset({"wandb", "mlflow"})
_TRACKED = frozenset({"log", "log_metric", "log_metrics"})

_SCREENS = frozenset({"sys.stdout", "sys.stderr"})

_READING_METHODS = frozenset(
    [
        "item",
        "tolist",
        "cpu",
        "detach",
        "numpy",
        "float",
        "double",
        "half",
        "bfloat16",
        "long",
        "int",
        "bool",
        "to",
        "mean",
        "sum",
        "abs",
        "max",
        "min",
        "norm",
        "std",
        "var",
        "sqrt",
        "exp",
        "log",
        "log2",
        "log10",
        "square",
        "argmax",
        "argmin",
        "any",
        "all",
        "view",
        "reshape",
        "squeeze",
        "flatten",
        "size",
        "dim",
        "numel",
        "format",
        "join",
        "keys",
        "values",
        "items",
        "get_last_lr",
        "get_lr",
        "get_scale",
        "perf_counter",
        "time",
        "monotonic",
        "now",
        "isoformat",
        "strftime",
        "elapsed_time",
        "upper",
        "lower",
        "ljust",
        "rjust",
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
    ]
)
"""Methods and functions of a module that read: they return a value and leave what they read as it was."""

_READING_FUNCTIONS = frozenset(
    [
        "float",
        "int",
        "str",
        "bool",
        "len",
        "round",
        "abs",
        "min",
        "max",
        "sum",
        "format",
        "repr",
    ]
)

_READING_NODES = (
    ast.Constant,
    ast.Name,
    ast.Attribute,
    ast.JoinedStr,
    ast.FormattedValue,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.Slice,
    ast.Dict,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Starred,
    ast.keyword,
    ast.ListComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.comprehension,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)


def expect_only_logs(statement: ast.Expr) -> None:
    """Raise :class:`Refused` unless the statement is one call that logs, and its arguments only read."""
    call = statement.value
    if not isinstance(call, ast.Call) or not _is_log(call):
        raise Refused("the statement is not a call that only logs")
    if any(item.arg == "file" and ast.unparse(item.value) not in _SCREENS for item in call.keywords):
        raise Refused("it writes into a file, whose content may be needed")
    if _counts_its_calls(call):
        raise Refused(f"`{ast.unparse(call.func)}` without `step` counts its own calls")
    for part in [*call.args, *call.keywords]:
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and not _only_reads(node):
                raise Refused(f"`{ast.unparse(node.func)}` in the logged values may do more than read")
            if not isinstance(node, (ast.Call, *_READING_NODES)):
                raise Refused("the logged values do more than read")


def _is_log(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "print"
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, last_name(call.func.value)
    if name in _BARS or name in _SCALARS:
        return _is_path(call.func.value)
    if name in _LEVELS:
        return _is_path(call.func.value) and "log" in owner.lower()
    if name == "write":
        return owner == "tqdm"
    return name in _TRACKED and owner in _TRACKERS


def _is_path(node: ast.expr) -> bool:
    """True for ``a.b.c``: what the log is called on is looked up, not computed."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _counts_its_calls(call: ast.Call) -> bool:
    """Wandb and mlflow number the calls that carry no ``step``: fewer calls would move the curve."""
    return last_name(call.func) in _TRACKED and not any(item.arg == "step" for item in call.keywords)


def _only_reads(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _READING_FUNCTIONS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _READING_METHODS
