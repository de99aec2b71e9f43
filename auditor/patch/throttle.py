"""Puts a statement that only logs under ``if counter % every == 0:``, if its loop has a counter."""

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial

from auditor.model import Edit
from auditor.patch.effects import expect_no_interval, expect_only_logs
from auditor.patch.module import (
    Module,
    Refused,
    SourceChange,
    SourceText,
    Splice,
    block_of,
    parse_expression,
)
from auditor.syntax.index import SCOPES, name_of, nodes_in, unparsed
from auditor.syntax.reaching import shared_names

_STRING_STARTS = frozenset({"FSTRING_START", "TSTRING_START"})
_STRING_ENDS = frozenset({"FSTRING_END", "TSTRING_END"})


def logging_statement(module: Module, edit: Edit) -> ast.Expr:
    """The statement on the edit's line, known to be nothing but a log. Raises :class:`Refused`."""
    found = module.on(edit.site.line, ast.Expr)
    if len(found) != 1:
        raise Refused(f"line {edit.site.line} is not one statement that only logs")
    expect_only_logs(found[0], safe=edit.safe)
    expect_no_interval(module, found[0])
    return found[0]


def throttle(module: Module, statements: Mapping[ast.Expr, int]) -> Iterator[SourceChange]:
    """Changes that let each statement run every N steps. Raises :class:`Refused` if none can."""
    numbered: dict[ast.For, str] = {}
    for statement, every in statements.items():
        counter, loop = counter_of(module, statement)
        if loop is not None:
            numbered[loop] = counter
        yield under(module, statement, parse_expression(f"{counter} % {every} == 0"))
    yield from (number_loop(module, loop, name) for loop, name in numbered.items())


def under(module: Module, statement: ast.Expr, test: ast.expr) -> SourceChange:
    """The change that puts the statement under a condition."""
    source = module.source
    start, end = source.span(statement)
    source.expect_own_lines(start, end)
    block, unit = block_of(module, statement), _indent_unit(module, statement)
    head = f"if {ast.unparse(test)}:\n{source.before(start)}{unit}"
    rows = [Splice(row, row, unit) for row in _movable_rows(source, statement)]
    return SourceChange(
        (Splice(start, start, head), *rows), partial(_rewrite, block, statement, test)
    )


def every_of(edit: Edit) -> int:
    """The edit's ``value``, a number of steps from 2 on. Raises :class:`Refused`."""
    value = edit.value.strip()
    if not (value.isascii() and value.isdigit() and 2 <= int(value) <= 1_000_000):
        raise Refused(f"`{edit.value}` is not a number of steps")
    return int(value)


def _indent_unit(module: Module, statement: ast.stmt) -> str:
    """How much the statement is indented in its block; four spaces if that cannot be told."""
    own = module.source.before(module.source.span(statement)[0])
    owner = module.parents[statement]
    if isinstance(owner, ast.stmt):
        line = module.source.lines[owner.lineno - 1]
        outer = line[: len(line) - len(line.lstrip())]
        if own.startswith(outer) and len(own) > len(outer):
            return own[len(outer) :]
    return "    "


def _movable_rows(source: SourceText, statement: ast.stmt) -> Iterator[int]:
    """Offsets of the statement's further lines that neither begin in a string nor are empty."""
    first, last = statement.lineno, statement.end_lineno or statement.lineno
    inside = set(_rows_inside_strings(source, statement))
    for line in range(first + 1, last + 1):
        if line not in inside and source.lines[line - 1].strip():
            yield source.offset(line, 0)


def _rows_inside_strings(source: SourceText, statement: ast.stmt) -> Iterator[int]:
    """Lines (from 1) whose first character belongs to a string that began on a line before."""
    # In parentheses, line ends and indentation mean nothing; they stand on the first line, so rows
    # keep their numbers.
    start, end = source.span(statement)
    depth, opened = 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(f"({source.text[start:end]})").readline):
            name, row = tokenize.tok_name[token.type], token.start[0]
            if name in _STRING_STARTS:
                depth, opened = depth + 1, opened if depth else row
            elif name in _STRING_ENDS:
                depth -= 1
            if not depth and (name == "STRING" or name in _STRING_ENDS):
                begun = row if name == "STRING" else opened
                yield from range(statement.lineno + begun, statement.lineno + token.end[0])
    except (tokenize.TokenError, SyntaxError):
        raise Refused("the statement cannot be read") from None


def _rewrite(block: list[ast.stmt], statement: ast.stmt, test: ast.expr) -> None:
    block[block.index(statement)] = ast.If(test=test, body=[statement], orelse=[])


# -- counters --------------------------------------------------------------------------------------
# Finds the integer that counts the steps of the loop or function that a statement stands in.


_LOOPS = (ast.For, ast.While)
_BARS = frozenset({"tqdm", "track", "progress_bar"})
_UNSEEN = "no step counter is visible here"


def counter_of(module: Module, statement: ast.stmt) -> tuple[str, ast.For | None]:
    """What is 0, 1, 2 ... (or starts later) on the steps on which the statement runs, and the loop
    that must be numbered by that name first. Raises :class:`Refused`.
    """
    scope = _step_scope(module, statement)
    nodes = nodes_in(scope.body, ast.Name, ast.Attribute)
    stored = Counter(unparsed(node) for node in nodes if not isinstance(node.ctx, ast.Load))
    found = _loop_variable(scope) if isinstance(scope, ast.For) else None
    if found is not None:
        if found in stored:
            raise Refused(f"`{found}` is set again inside its loop")
        return found, None
    for counted in _counted_up(scope):
        if stored[counted] == 1 and _starts_as_integer(module, counted):
            return counted, None
    if not isinstance(scope, ast.For):
        raise Refused(_UNSEEN)
    return free_name(module), scope


def _step_scope(module: Module, statement: ast.stmt) -> ast.For | ast.While | ast.FunctionDef:
    """The innermost loop around the statement that steps an optimizer, or is a whole step's."""
    loops: list[ast.For | ast.While] = []
    below: ast.AST = statement
    function: ast.AST | None = None
    for up in module.ancestors(statement):
        if isinstance(up, SCOPES):
            function = up
            break
        if isinstance(up, _LOOPS) and below in up.body and not _turns_once(up):
            loops.append(up)
        below = up
    stepping = [loop for loop in loops if _steps_an_optimizer(loop)]
    if function is not None and _steps_an_optimizer(function):
        loops = []  # they run within a step, and their counters begin again in the next
    found = next(iter(stepping or loops), function)
    if not isinstance(found, (*_LOOPS, ast.FunctionDef)):
        raise Refused(_UNSEEN)
    return found


def _turns_once(loop: ast.For | ast.While) -> bool:
    """``for epoch in range(1):``: its counter never leaves 0."""
    source = loop.iter if isinstance(loop, ast.For) else None
    if isinstance(source, (ast.List, ast.Tuple)):
        return len(source.elts) < 2
    return (
        isinstance(source, ast.Call)
        and name_of(source.func) in ("range", "trange")
        and len(source.args) == 1
        and _is_int(source.args[0], 1)
    )


def _steps_an_optimizer(scope: ast.AST) -> bool:
    called = (node.func for node in ast.walk(scope) if isinstance(node, ast.Call))
    return any(
        isinstance(func, ast.Attribute)
        and func.attr == "step"
        and "sched" not in ast.unparse(func).lower()
        for func in called
    )


def _loop_variable(loop: ast.For) -> str | None:
    """``i`` of ``for i in range(n)`` and ``for i, b in enumerate(x)``, also in a progress bar."""
    source = loop.iter
    while isinstance(source, ast.Call) and name_of(source.func) in _BARS and source.args:
        source = source.args[0]
    if not isinstance(source, ast.Call) or not isinstance(source.func, ast.Name):
        return None
    name = source.func.id
    if name in ("range", "trange") and len(source.args) <= 2 and isinstance(loop.target, ast.Name):
        return loop.target.id
    if (
        name == "enumerate"
        and isinstance(loop.target, ast.Tuple)
        and isinstance(loop.target.elts[0], ast.Name)
    ):
        return loop.target.elts[0].id
    return None


def _counted_up(scope: ast.For | ast.While | ast.FunctionDef) -> Iterator[str]:
    """What the scope's own statements, under no condition, count up by one."""
    for node in scope.body:
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and _is_int(node.value, 1)
        ):
            counted = node.target
            # a function's parameter begins again
            lives_on = not isinstance(scope, ast.FunctionDef) or (
                isinstance(counted, ast.Name) and counted.id in shared_names(scope)
            )
            if isinstance(counted, ast.Attribute) or (isinstance(counted, ast.Name) and lives_on):
                yield unparsed(counted)


def _is_int(node: ast.AST | None, value: int | None = None) -> bool:
    is_int = isinstance(node, ast.Constant) and type(node.value) is int
    return is_int and (value is None or node.value == value)  # type: ignore[union-attr]


def _starts_as_integer(module: Module, counted: str) -> bool:
    """Something sets it to a plain integer: a tensor that counts would be read on the host."""
    return any(
        isinstance(node, ast.Assign)
        and _is_int(node.value)
        and counted in map(unparsed, node.targets)
        for node in module.parents
    )


# -- loops that count nothing ----------------------------------------------------------------------


_NAMES = ("step", "batch_number", "steps_done")


def free_name(module: Module) -> str:
    """A name for the number that nothing in the file uses. Raises :class:`Refused`."""
    used = {name for node in module.parents for name in _identifiers(node)}
    found = next((name for name in _NAMES if name not in used), None)
    if found is None:
        raise Refused("no step counter is visible here, and its usual names are taken")
    if any("enumerate" in _identifiers(node) for node in module.parents if not _reads(node)):
        raise Refused("`enumerate` is something else in this file")
    return found


def number_loop(module: Module, loop: ast.For, name: str) -> SourceChange:
    """The change that counts the rounds of a loop from 0."""
    start, end = module.source.span(loop.target)
    target = module.source.text[start:end]
    bare = isinstance(loop.target, ast.Tuple) and not (
        target.startswith("(") and target.endswith(")")
    )
    opening, closing = (f"{name}, (", ")") if bare else (f"{name}, ", "")
    first, last = module.source.span(loop.iter)
    splices = [
        Splice(start, start, opening),
        Splice(first, first, "enumerate("),
        Splice(last, last, ")"),
    ]
    if closing:
        splices.append(Splice(end, end, closing))
    return SourceChange(tuple(splices), partial(_number, loop, name))


def _number(loop: ast.For, name: str) -> None:
    number = ast.Name(id=name, ctx=ast.Store())
    loop.target = ast.Tuple(elts=[number, loop.target], ctx=ast.Store())
    loop.iter = ast.Call(
        func=ast.Name(id="enumerate", ctx=ast.Load()), args=[loop.iter], keywords=[]
    )


def _reads(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Names that a node reads or binds; attributes and keywords of calls are none."""
    if isinstance(node, ast.Attribute | ast.keyword):
        return
    for field in ("id", "arg", "name", "asname", "rest"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value.partition(".")[0]
    if isinstance(node, (ast.Global, ast.Nonlocal)):
        yield from node.names
