"""Which expressions only read: leaving one out, or evaluating it less often, changes nothing
else.
"""

from __future__ import annotations

import ast

_METHODS = frozenset(
    """
    item tolist cpu detach numpy float double half bfloat16 long int bool to mean sum abs max min
    norm std var sqrt exp log log2 log10 square argmax argmin any all view reshape squeeze flatten
    size dim numel format join keys values items get_last_lr get_lr get_scale perf_counter time
    monotonic now isoformat strftime elapsed_time upper lower ljust rjust memory_allocated
    max_memory_allocated memory_reserved max_memory_reserved
    """.split()
)
"""Methods and functions of a module that read: they return a value and leave what they read as it
was.
"""

_FUNCTIONS = frozenset(
    ["float", "int", "str", "bool", "len", "round", "abs", "min", "max", "sum", "format", "repr"]
)

_ASKING_METHODS = frozenset(
    """
    is_available is_initialized is_main_process is_rank_zero device_count current_device
    get_device_name get_rank get_world_size startswith endswith is_cuda device isfinite isnan
    get_device_capability mem_get_info perf_counter_ns monotonic_ns time_ns
    """.split()
)
"""What conditions and settings ask besides: of a device, a process group, a string, a clock."""

_ASKING_FUNCTIONS = frozenset(
    "isinstance hasattr getattr range type is_main_process get_rank device_count".split()
)

_NODES = (
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


def writes(expression: ast.AST, *, asks: bool = False) -> ast.AST | None:
    """The first part of an expression that may do more than read, None if all of it only reads.

    ``asks``: it is a condition or a setting, which may also ask for what a logged value has no use
    for.
    """
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            if not (_reads(node) or (asks and _asks(node))):
                return node
        elif not isinstance(node, _NODES):
            return node
    return None


def _reads(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _FUNCTIONS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _METHODS


def _asks(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in _ASKING_FUNCTIONS
    return isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING_METHODS
