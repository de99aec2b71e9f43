"""Is what a line computes compared with what it should have been, for a loss or a metric alone?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.source.evaluations import is_decorated_off, turns_off
from auditor.evidence.source.files import Function, Source, lines_of, name_of
from auditor.model import Site

SCORES = frozenset(
    """
    loss losses criterion crit cost xent recall precision entropy nll mse mae bce ce l1 accuracy acc
    metric metrics dice iou miou psnr ssim perplexity ppl auc f1
    """.split()
)
"""Words in the names of calls that compare a result with its target."""

EVALUATES = frozenset(
    ["eval", "evaluate", "evaluation", "val", "valid", "validate", "validation", "test", "dev"]
)
"""Words in names by which a program says that it evaluates."""

ON_PURPOSE = frozenset(["bn", "mc", "uncertainty", "recalibrate", "calibrate", "ensemble"])
"""Words in the names of functions that want train mode."""

DISTANCES = frozenset(["abs", "square", "pow", "norm"])
"""Calls that make a distance of a difference."""

Statement = ast.Assign | ast.AugAssign | ast.AnnAssign


@dataclass(frozen=True)
class Evaluation:
    """The line that evaluates; ``named``: a name around it says so."""

    site: Site
    named: bool


def evaluation(source: Source, at: Site, within: Site) -> Evaluation | None:
    """What is known of a call at ``at``, made with gradients off since ``within``, the line in the
    function that turned them off, which is pointed at where others call that of ``at``, too. None
    where nothing is compared, or the comparison serves more than a report.
    """
    name = function_of(source, at)
    same = at.file == within.file and name == function_of(source, within)
    own = same or calls_of(source, name) == 1
    site = at if own else within
    named = _scored(source, site, whole=own and not same)
    return None if named is None else Evaluation(site, named)


def _scored(source: Source, site: Site, *, whole: bool) -> bool | None:
    """Whether a name says that the line evaluates; ``whole``: gradients are off in all of its
    function. None where it does not.
    """
    function = source.index(site.file).scope_at(site.line)
    block = None if function is None else _block(function, site.line, whole=whole)
    if function is None or block is None or _wanted(function, block, site.line):
        return None
    statement = _statement(block, site.line)
    if statement is None or _repeated(block, statement) or _of_training(function, block, site.line):
        return None
    named = _is_named(function, block, statement)
    outputs = _targets(statement)
    reached = _reached(block, outputs, site.line)
    compared = _compares(statement, None, by_hand=named) or any(
        _compares(node, reached, by_hand=named) for node in ast.walk(block)
    )
    picked = compared and _picked(function, block, outputs, reached)
    return named if compared and not picked else None


def _block(function: ast.AST, line: int, *, whole: bool) -> ast.AST | None:
    """Where gradients are off around the line."""
    if whole or (isinstance(function, Function) and is_decorated_off(function)):
        return function
    blocks = (
        node
        for node in ast.walk(function)
        if isinstance(node, ast.With) and turns_off(node) and line in lines_of(node)
    )
    return min(blocks, key=lambda node: node.lineno, default=None)


def _wanted(function: ast.AST, block: ast.AST, line: int) -> bool:
    """Train mode is asked for in the block, or the function's name says why."""
    if isinstance(function, Function) and words(function.name) & ON_PURPOSE:
        return True
    return any(
        isinstance(node, ast.Call)
        and name_of(node.func) == "train"
        and isinstance(node.func, ast.Attribute)
        and not any(isinstance(each, ast.Constant) and each.value is False for each in node.args)
        and node.lineno <= line
        for node in ast.walk(block)
    )


def _statement(block: ast.AST, line: int) -> ast.stmt | None:
    """The innermost one on the line: of a compound one only what stands at its head."""
    found = [
        node
        for node in ast.walk(block)
        if isinstance(node, ast.stmt) and node is not block and line in lines_of(node)
    ]
    return max(found, key=lambda node: node.lineno, default=None)


def _repeated(block: ast.AST, statement: ast.stmt) -> bool:
    """The same input goes in several times: a loop over ``range`` that changes nothing of it."""
    loops = [
        node
        for node in ast.walk(block)
        if isinstance(node, ast.For | ast.comprehension) and _holds(node, block, statement)
    ]
    for loop in loops:
        counted = isinstance(loop.iter, ast.Call) and name_of(loop.iter.func) == "range"
        body = loop.body if isinstance(loop, ast.For) else []
        others = [each for node in body for each in ast.walk(node) if _is_other(each, statement)]
        changed = {name for node in others for name in _stored(node)} | set(_stored(loop.target))
        if counted and not _loaded(statement) & changed:
            return True
    return False


def _holds(loop: ast.For | ast.comprehension, block: ast.AST, statement: ast.stmt) -> bool:
    if isinstance(loop, ast.For):
        return loop is not statement and any(node is statement for node in ast.walk(loop))
    return any(node is loop for node in ast.walk(statement))


def _is_other(node: ast.AST, statement: ast.stmt) -> bool:
    return isinstance(node, Statement | ast.For) and node is not statement


def _of_training(function: ast.AST, block: ast.AST, line: int) -> bool:
    """The same call, of what the block did not make, stands outside of it as well: the batch that
    is trained on.
    """
    inside = set(map(id, ast.walk(block)))
    made = {name for node in ast.walk(block) for name in _own_stores(node)}
    others = {
        ast.dump(node)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and id(node) not in inside
    }
    return any(
        isinstance(node, ast.Call)
        and line in lines_of(node)
        and ast.dump(node) in others
        and bool(node.args or node.keywords)
        and not _loaded(node) & made
        for node in ast.walk(block)
    )


def _is_named(function: ast.AST, block: ast.AST, statement: ast.stmt) -> bool:
    names = set(_targets(statement)) | _loaded(statement)
    if isinstance(function, Function):
        names.add(function.name)
    for node in ast.walk(block):
        if isinstance(node, ast.For) and any(each is statement for each in ast.walk(node)):
            names |= _loaded(node.iter)
    return any(words(name) & EVALUATES for name in names)


def _reached(block: ast.AST, outputs: set[str], line: int) -> set[str]:
    """Names that hold something made of these."""
    reached, grown = set(outputs), -1
    statements = [
        node for node in ast.walk(block) if isinstance(node, Statement) and node.lineno >= line
    ]
    while grown != len(reached):
        grown = len(reached)
        for node in statements:
            if node.value is not None and _loaded(node.value) & reached:
                reached |= _targets(node)
    return reached


def _compares(node: ast.AST, results: set[str] | None, *, by_hand: bool) -> bool:
    """A loss, a metric or ``==`` of a result and something else; ``results`` None: anywhere in the
    statement that computes them. ``by_hand``: also ``(result - target).abs()``.
    """
    if results is None:
        return any(_is_score(each, None, by_hand=by_hand) for each in ast.walk(node))
    return _is_score(node, results, by_hand=by_hand)


def _is_score(node: ast.AST, results: set[str] | None, *, by_hand: bool) -> bool:
    if isinstance(node, ast.Call) and words(_called(node)) & SCORES:
        parts = [*node.args, *(each.value for each in node.keywords)]
        if results is None:  # around the call, or a helper that makes it
            several = len(parts) > 1 or any(isinstance(each, ast.Starred) for each in parts)
            return several and bool(_loaded(*parts))
        return _of_two(parts, results)
    if isinstance(node, ast.Call) and name_of(node.func) == "eq":
        owner = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return _of_two([*owner, *node.args], results)
    if isinstance(node, ast.Compare) and all(isinstance(each, ast.Eq) for each in node.ops):
        return _of_two([node.left, *node.comparators], results)
    if isinstance(node, ast.Attribute) and node.attr == "loss":
        return results is None or bool(_loaded(node.value) & results)
    return by_hand and any(_of_two(pair, results) for pair in _differences(node))


def _differences(node: ast.AST) -> Iterator[list[ast.expr]]:
    """Both sides of the differences that are made a distance."""
    squared = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
    far = isinstance(node, ast.Call) and name_of(node.func) in DISTANCES
    if squared or far:
        for each in ast.walk(node):
            if isinstance(each, ast.BinOp) and isinstance(each.op, ast.Sub):
                yield [each.left, each.right]


def _of_two(parts: list[ast.expr], results: set[str] | None) -> bool:
    """One of them is a result, another has names and is none."""
    if results is None:
        called = [any(isinstance(each, ast.Call) for each in ast.walk(part)) for part in parts]
        rest = [part for part, calls in zip(parts, called, strict=True) if not calls]
        return any(called) and bool(_loaded(*rest))
    own = [bool(_loaded(part) & results) for part in parts]
    others = [part for part, is_own in zip(parts, own, strict=True) if not is_own and _loaded(part)]
    return any(own) and bool(others)


def _picked(function: ast.AST, block: ast.AST, outputs: set[str], reached: set[str]) -> bool:
    """What only the block makes is used behind it for more than numbers: it is compared there with
    something else, or chooses samples.
    """
    inside = set(map(id, ast.walk(block)))
    outside = [node for node in ast.walk(function) if id(node) not in inside]
    given = {name for node in outside for name in _own_stores(node)}
    outputs, reached = outputs - given, reached - given
    return any(
        (isinstance(node, ast.Call) and _is_score(node, outputs, by_hand=False))
        or (isinstance(node, ast.Subscript) and bool(_loaded(node.slice) & reached))
        for node in outside
    )


def words(name: str) -> set[str]:
    """``val`` and ``loader`` of ``val_loader`` and of ``valLoader``."""
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z]+\d*|[A-Z]+(?![a-z])\d*", name)}


def _called(call: ast.Call) -> str:
    """The last name, and that of what it is an attribute of (``metric.update``)."""
    name = name_of(call.func)
    if isinstance(call.func, ast.Attribute) and name in ("update", "forward", "add_batch"):
        return f"{name_of(call.func.value)} {name}"
    return name


def _targets(node: ast.AST) -> set[str]:
    """Names that a statement gives to something, a walrus's among them."""
    return set(_stored(node))


def _own_stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _stored(node: ast.AST) -> Iterator[str]:
    return (name for each in ast.walk(node) for name in _own_stores(each))


def _loaded(*nodes: ast.AST) -> set[str]:
    return {
        each.id
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    }


def calls_of(source: Source, name: str) -> int:
    """How many lines of the program call a function of this name."""
    return len(
        {
            (file, node.lineno)
            for file, text in source.texts.items()
            for node in (source.nodes(file) if name in text else ())
            if isinstance(node, ast.Call) and name_of(node.func) == name
        }
    )


def function_of(source: Source, site: Site) -> str:
    """Name of the function around a line; empty where there is none."""
    scope = source.index(site.file).scope_at(site.line)
    return scope.name if isinstance(scope, Function) else ""
