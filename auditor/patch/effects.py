"""Which expressions only read: leaving one out, or seldom evaluating it, changes nothing."""

import ast

from auditor.patch.module import Module, Refused
from auditor.syntax.index import name_of, nodes_in, root_of
from auditor.syntax.logging_calls import counts_its_calls, log_kind

_METHODS = frozenset(
    """
    item tolist cpu detach numpy float double half bfloat16 long int bool to mean sum abs max min
    norm std var sqrt exp log log2 log10 square argmax argmin any all view reshape squeeze flatten
    size dim numel format join keys values items get_last_lr get_lr get_scale perf_counter time
    monotonic now isoformat strftime elapsed_time upper lower ljust rjust memory_allocated
    max_memory_allocated memory_reserved max_memory_reserved
    """.split()
)
"""Methods and functions of a module that return a value and leave what they read as it was."""

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
    ast.Constant, ast.Name, ast.Attribute, ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.UnaryOp,
    ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice, ast.Dict, ast.List, ast.Tuple,
    ast.Set, ast.Starred, ast.keyword, ast.ListComp, ast.GeneratorExp, ast.DictComp,
    ast.comprehension, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def writes(expression: ast.AST, *, asks: bool = False) -> ast.AST | None:
    """The first part of an expression that may do more than read, None if all of it only reads.

    ``asks``: it is a condition or a setting, which may also ask for what a logged value has no use
    for.
    """
    for node in ast.walk(expression):
        if isinstance(node, ast.Call):
            reads = _is_one_of(node, _FUNCTIONS, _METHODS)
            if not (reads or (asks and _is_one_of(node, _ASKING_FUNCTIONS, _ASKING_METHODS))):
                return node
        elif not isinstance(node, _NODES):
            return node
    return None


def _is_one_of(call: ast.Call, functions: frozenset[str], methods: frozenset[str]) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in functions
    return isinstance(call.func, ast.Attribute) and call.func.attr in methods


# -- statements that only log ----------------------------------------------------------------------


_SCOPES = (ast.For, ast.While, ast.FunctionDef, ast.Lambda, ast.ClassDef)
_SWITCH_CALLS = frozenset(
    "is_main_process is_rank_zero get_rank is_available is_initialized isinstance hasattr getattr".split()
)
_SWITCH_OPERATORS = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


def expect_only_logs(statement: ast.Expr, *, safe: bool) -> None:
    """Raise :class:`Refused` unless the statement is one call that logs, and its arguments only
    read.

    ``safe``: the edit is to be called safe, which it is not where a file is written.
    """
    call = statement.value
    kind = log_kind(call) if isinstance(call, ast.Call) else None
    if not isinstance(call, ast.Call) or kind is None:
        raise Refused("the statement is not a call that only logs")
    if kind == "file" and safe:
        raise Refused("it writes into a file, whose content may be needed")
    if counts_its_calls(call) and not any(item.arg == "step" for item in call.keywords):
        raise Refused(f"`{ast.unparse(call.func)}` without `step` counts its own calls")
    for part in [*call.args, *call.keywords]:
        more = writes(part)
        if isinstance(more, ast.Call):
            raise Refused(f"`{ast.unparse(more.func)}` in the logged values may do more than read")
        if more is not None:
            raise Refused("the logged values do more than read")


def expect_no_interval(module: Module, statement: ast.stmt) -> None:
    """Raise :class:`Refused` unless all conditions around are fixed switches: ``if verbose:``."""
    below: ast.AST = statement
    conditions: list[ast.expr] = []
    for up in module.ancestors(statement):
        if isinstance(up, (ast.AsyncFor, ast.AsyncFunctionDef)):
            raise Refused("the statement is in asynchronous code")
        if isinstance(up, _SCOPES):
            break
        if isinstance(up, ast.If):
            conditions.append(up.test)
        if isinstance(up, ast.ExceptHandler) or type(up).__name__ in {"match_case", "TryStar"}:
            raise Refused("the statement is under a condition already")
        below = up
    scope = module.parents.get(below, module.tree)
    set_there = {
        name_of(node)
        for node in nodes_in(scope, ast.Name, ast.Attribute)
        if not isinstance(node.ctx, ast.Load)
    }
    for test in conditions:
        read = {name_of(node) for node in nodes_in(test, ast.Name, ast.Attribute)}
        if not _is_switch(test) or read & set_there:
            raise Refused("the statement is under a condition already")


def _is_switch(test: ast.expr) -> bool:
    """Names, paths and their comparisons with a string, flag or None; a rank's with a number."""
    if isinstance(test, ast.BoolOp):
        return all(map(_is_switch, test.values))
    if isinstance(test, ast.UnaryOp):
        return isinstance(test.op, ast.Not) and _is_switch(test.operand)
    if isinstance(test, ast.Compare):
        sides = [test.left, *test.comparators]
        plain = all(isinstance(op, _SWITCH_OPERATORS) for op in test.ops) and len(sides) == 2
        numbers = any(
            isinstance(side, ast.Constant) and type(side.value) in (int, float) for side in sides
        )
        written = any(
            isinstance(side, (ast.Constant, ast.Tuple, ast.List, ast.Set)) for side in sides
        )
        of_rank = any("rank" in _name(side).lower() for side in sides)
        return plain and written and (not numbers or of_rank) and all(map(_is_plain, sides))
    return _is_plain(test)


def _is_plain(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _SWITCH_CALLS and writes(node, asks=True) is None
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return all(map(_is_plain, node.elts))
    return isinstance(root_of(node), (ast.Name, ast.Constant))


def _name(node: ast.expr) -> str:
    return name_of(node.func if isinstance(node, ast.Call) else node)
