"""Drops statements. With one go its ``if`` and a blank line too many; comments and imports stay."""

import ast
import itertools
import re
from collections.abc import Iterable, Iterator
from functools import partial

from auditor.model import Edit
from auditor.patch.effects import writes
from auditor.patch.module import (
    Module,
    Refused,
    SourceChange,
    SourceText,
    Splice,
    block_of,
    only_alike,
)
from auditor.syntax.index import ADDS_ITEM, name_of


def drop_statements(module: Module, doomed: Iterable[ast.stmt]) -> Iterator[SourceChange]:
    """The changes that drop statements and what they leave useless.

    Raises :class:`Refused` if a leftover would be odd and must not be removed.
    """
    gone = set(doomed)
    close(module, gone)
    outermost = [each for each in gone if not any(up in gone for up in module.ancestors(each))]
    blocks = {id(block): block for block in (block_of(module, each) for each in outermost)}
    for block in blocks.values():
        lost = gone.intersection(block)
        at_top = block is module.tree.body
        if at_top or len(lost) < len(block):
            splices = tuple(_drop_some(module.source, block, lost))
        else:
            splices = tuple(_nothing_done(module.source, block))
        yield SourceChange(splices, partial(_take_out, block, lost, at_top=at_top))


# -- one block -------------------------------------------------------------------------------------


def _take_out(block: list[ast.stmt], lost: set[ast.stmt], *, at_top: bool) -> None:
    """Other changes may have put statements into the block by now."""
    kept = [statement for statement in block if statement not in lost]
    block[:] = kept if kept or at_top else [ast.Pass()]


def _drop_some(source: SourceText, block: list[ast.stmt], lost: set[ast.stmt]) -> Iterator[Splice]:
    for doomed, run in itertools.groupby(block, key=lost.__contains__):
        if doomed:
            yield _drop_rows(source, block, list(run))


def _drop_rows(source: SourceText, block: list[ast.stmt], run: list[ast.stmt]) -> Splice:
    lines, last = source.lines, run[-1]
    head = (run[0], *getattr(run[0], "decorator_list", ()))
    source.expect_own_lines(min(source.span(node)[0] for node in head), source.span(last)[1])
    begin = min(node.lineno for node in head) - 1
    behind = last.end_lineno or last.lineno
    before = _blank_rows(lines, range(begin - 1, -1, -1))
    after = _blank_rows(lines, range(behind, len(lines) - (lines[-1] == "")))
    if last is block[-1]:
        return _cut(source, begin - before, behind)
    alone = run[0] is block[0] and not before
    return _cut(source, begin, behind + (after if alone else min(before, after)))


def _blank_rows(lines: list[str], rows: range) -> int:
    return sum(1 for _ in itertools.takewhile(lambda row: not lines[row].strip(), rows))


def _cut(source: SourceText, first: int, behind: int) -> Splice:
    end = source.offset(behind + 1, 0) if behind < len(source.lines) else len(source.text)
    return Splice(source.offset(first + 1, 0), end)


def _nothing_done(source: SourceText, statements: list[ast.stmt]) -> Iterator[Splice]:
    start, end = source.span(statements[0])[0], source.span(statements[-1])[1]
    behind = re.compile(r"[ \t\f]*;?[ \t\f]*(#[^\n]*)?$", re.MULTILINE).match(source.text, end)
    yield Splice(start, behind.end() if behind else end, "pass")


# -- hollow ----------------------------------------------------------------------------------------
# What goes with a dropped statement: the ``if`` around it that would be left with nothing to do.


def close(module: Module, gone: set[ast.stmt]) -> None:
    """Add to ``gone`` what is left hollow by it. Raises :class:`Refused` if one may not go."""
    pending = list(gone)
    while pending:
        owner = module.parents[pending.pop()]
        if isinstance(owner, ast.stmt) and owner not in gone and _goes(module, owner, gone):
            gone.add(owner)
            pending.append(owner)


def _goes(module: Module, owner: ast.stmt, gone: set[ast.stmt]) -> bool:
    if not gone.issuperset(getattr(owner, "body", ())):
        return False
    if not isinstance(owner, ast.If):
        name = getattr(owner, "name", "") or type(owner).__name__.removeprefix("Async").lower()
        raise Refused(f"the body of `{name}` around the statement would be left empty")
    if not gone.issuperset(owner.orelse) or module.source.code(owner).startswith("elif"):
        return False  # ``pass`` says what is not done
    if writes(owner.test, asks=True) is not None:
        asked = module.source.code(owner.test).split("\n")[0]
        raise Refused(f"`if {asked}:` would be left empty, and its condition may have side effects")
    return True


# -- detach ----------------------------------------------------------------------------------------

_SUFFIX = ".detach()"
_TO_NUMBER = frozenset({"item", "tolist", "float", "int", "bool", "len", "str", "round"})
_CUTS_GRAPH = _TO_NUMBER | {"detach", "detach_", "numpy"}
_TAKES_SUFFIX = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
_NEEDS_PARENTHESES = (ast.BinOp, ast.UnaryOp, ast.IfExp, ast.NamedExpr, ast.Await)
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def values_to_detach(module: Module, edit: Edit) -> list[ast.expr]:
    """The expressions that the edit wants detached. Raises :class:`Refused`."""
    line = edit.site.line
    statements = module.on(line, *_STATEMENTS, ast.Expr)
    stored = [(node, value) for node in statements for value in _stored(node)]
    if not stored:
        raise Refused(f"line {line} stores no value that could be detached")
    only_alike([node for node, _ in stored], f"line {line} stores more than one value")
    values = [_sole(value) for _, value in stored]
    for value in values:
        _expect_tensor(module, value)
    return values


def detach(module: Module, value: ast.expr) -> SourceChange:
    """The change that detaches one expression."""
    start, end = module.source.span(value)
    splices: tuple[Splice, ...] = (Splice(end, end, _SUFFIX),)
    if isinstance(value, _NEEDS_PARENTHESES):
        closing = _own_parenthesis(module, value, module.parents[value])
        if closing is not None:
            splices = (Splice(closing, closing, _SUFFIX),)
        else:
            splices = (Splice(start, start, "("), Splice(end, end, f"){_SUFFIX}"))
    called = ast.Call(
        func=ast.Attribute(value=value, attr="detach", ctx=ast.Load()), args=[], keywords=[]
    )
    return SourceChange(splices, partial(module.replace, value, called))


def _own_parenthesis(module: Module, value: ast.expr, statement: ast.AST) -> int | None:
    """Offset behind the parenthesis that already closes around a whole right side, else None."""
    if not isinstance(statement, _STATEMENTS):
        return None
    text = module.source.text
    start, end = module.source.span(value)
    rest = text[end : module.source.span(statement)[1]]
    if rest.lstrip().startswith(")") and text[:start].rstrip().endswith("("):
        return end + rest.index(")") + 1
    return None


def _stored(statement: ast.stmt) -> Iterator[ast.expr]:
    """What a statement stores: its right side, or the one argument of ``losses.append(...)``."""
    if isinstance(statement, ast.Assign) and len(statement.targets) > 1:
        raise Refused("the value is assigned to several names at once")
    if isinstance(statement, _STATEMENTS) and statement.value is not None:
        yield statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if len(call.args) != 1 or call.keywords:
            return
        if name_of(call.func) in {"extend", "extendleft"}:
            raise Refused("which element of the list carries the graph is not known")
        if name_of(call.func) in ADDS_ITEM:
            yield call.args[0]


def _sole(value: ast.expr) -> ast.expr:
    """The one value inside a literal of one; the value itself if it is no literal."""
    if not isinstance(value, (ast.Dict, ast.List, ast.Tuple, ast.Set)):
        return value
    inside = value.values if isinstance(value, ast.Dict) else value.elts
    if len(inside) != 1:
        raise Refused(
            "several values are stored together, so which one carries the graph is not known"
        )
    return _sole(inside[0])


def _expect_tensor(module: Module, value: ast.expr) -> None:
    code = module.source.code(value)
    if all(_cuts(node) or isinstance(node, ast.Constant) for node in _operands(value)):
        raise Refused(f"`{code}` already carries no graph")
    if not isinstance(value, (*_TAKES_SUFFIX, *_NEEDS_PARENTHESES)) or (
        isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    ):
        raise Refused(f"`{code}` is not an expression that can be detached")
    if module.quoted_in(value) is not None:
        raise Refused(f"`{code}` stands inside an f-string")
    if isinstance(value, (ast.BinOp, ast.UnaryOp, ast.IfExp)) and any(
        isinstance(node, ast.Call) and name_of(node.func) in _TO_NUMBER for node in _operands(value)
    ):
        # number * unknown may be a plain number, which has no detach()
        raise Refused(
            f"`{code}` has a plain number in it, so which part carries the graph is not known"
        )


def _cuts(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return name_of(node.func) in _CUTS_GRAPH
    return isinstance(node, ast.Attribute) and node.attr == "data"


def _operands(value: ast.expr) -> Iterator[ast.expr]:
    """What arithmetic combines into a value."""
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.BinOp):
            pending += [node.left, node.right]
        elif isinstance(node, ast.UnaryOp):
            pending.append(node.operand)
        elif isinstance(node, ast.IfExp):
            pending += [node.body, node.orelse]
        else:
            yield node
