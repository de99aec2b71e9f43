"""Which loop a line of the source stands in."""

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace

from auditor.evidence.source.files import Function, Source, name_of
from auditor.model import Site
from auditor.syntax.index import COMPREHENSIONS, LOOPS, SCOPES, called_in, nodes_in, run_in

DEEPEST = 3
"""Calls of the program's functions that are followed."""


def loop_around(source: Source, site: Site) -> int | None:
    """First line of the innermost loop or comprehension around the site in its function."""
    innermost: ast.AST | None = None
    kinds = (*LOOPS, *COMPREHENSIONS, *SCOPES)
    for node in source.index(site.file).on(site.line, *kinds):
        if _covers(node, site.line):
            innermost = node  # ast.walk goes by depth: later is further inside
    if innermost is None or isinstance(innermost, SCOPES):
        return None
    return getattr(innermost, "lineno", None)


def _covers(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    if isinstance(node, ast.Lambda) and first == line:
        return False  # a key function within the line
    return first <= line <= (last or first)


def loop_of_epochs(source: Source, stack: Sequence[Site]) -> Site | None:
    """The loop whose turns are the epochs of a ``for`` statement that goes over a loader on the last
    of these lines, the outermost first: the next one around it, in its function or where that was
    called from. None if there is none, or the line is no such statement.
    """
    if not stack:
        return None
    over = [node for node in _loops_around(source, stack[-1]) if _goes_over(node, stack[-1].line)]
    inside: ast.AST | None = over[-1] if over else None
    if inside is None:
        return None
    for site in reversed(stack):
        around = [node for node in _loops_around(source, site) if node is not inside]
        if around:
            return replace(source.site_of(site.file, around[-1]), function=site.function)
    return None


def _loops_around(source: Source, site: Site) -> list[ast.For | ast.AsyncFor | ast.While]:
    """The loops around a line, of its innermost function, the innermost last."""
    found: list[ast.For | ast.AsyncFor | ast.While] = []
    for node in source.index(site.file).on(site.line, *SCOPES, *LOOPS):
        if isinstance(node, SCOPES) and _covers(node, site.line):
            found = []
        elif isinstance(node, LOOPS):
            found.append(node)
    return found


def _goes_over(loop: ast.AST, line: int) -> bool:
    if not isinstance(loop, (ast.For, ast.AsyncFor)):
        return False
    return loop.lineno <= line <= (loop.iter.end_lineno or loop.lineno)


def trains(source: Source, file: str, head: int) -> bool:
    """True if each turn of the loop that begins there runs a backward: it is the training's."""
    bodies = [node for node in source.index(file).on(head, *LOOPS) if node.lineno == head]
    return any(_runs_backward(source, body, DEEPEST) for body in bodies)


PASSED_THROUGH = frozenset({"enumerate", "tqdm", "trange", "track"})
"""Calls around what a loop goes over that leave its length as it is."""


def exhausts(source: Source, site: Site) -> bool:
    """True if a ``for`` on this line goes over one thing to its end: nothing cuts it short."""
    heads = [
        node for node in source.index(site.file).on(site.line, ast.For) if node.lineno == site.line
    ]
    leaving = (ast.Break, ast.Return, ast.Raise)
    return (
        len(heads) == 1
        and _is_whole_value(heads[0].iter)
        and not any(isinstance(node, leaving) for node in run_in(heads[0].body))
    )


def _is_whole_value(over: ast.expr) -> bool:
    while isinstance(over, ast.Call) and over.args and name_of(over.func) in PASSED_THROUGH:
        over = over.args[0]
    return isinstance(over, (ast.Name, ast.Attribute, ast.Subscript))


def joins(source: Source, file: str) -> bool:
    """True if a ``with`` of the file lets ranks go on alone (``model.join()``, ``Join([...])``)."""
    return any(
        isinstance(item.context_expr, ast.Call) and name_of(item.context_expr.func) in JOINS
        for node in source.index(file).of(ast.With)
        for item in node.items
    )


JOINS = frozenset({"join", "Join"})


def _runs_backward(source: Source, body: ast.AST, depth: int) -> bool:
    called = called_in(body)
    if "backward" in called:
        return True
    return depth > 0 and any(
        _runs_backward(source, node, depth - 1)
        for _, node in source.functions
        if node.name in called and node is not body
    )


# -- evaluations -----------------------------------------------------------------------------------

OFF = frozenset({"no_grad", "inference_mode", "set_grad_enabled"})
"""What turns gradients off, as a context manager or a decorator."""


def evaluates(source: Source, site: Site) -> bool:
    """True if the line's function turns gradients off, in a block behind it or by a call."""
    function = source.index(site.file).scope_at(site.line)
    if function is None:
        return False
    if isinstance(function, Function) and is_decorated_off(function):
        return True
    if any(node.lineno >= site.line and turns_off(node) for node in nodes_in(function, ast.stmt)):
        return True
    called = {
        name_of(call.func) for call in nodes_in(function, ast.Call) if call.lineno >= site.line
    }
    return any(each.name in called and _is_off(each) for _, each in source.functions)


TRAINS = frozenset(
    ("backward", "grad", "step", "zero_grad", "requires_grad_", "enable_grad", "set_grad_enabled")
)
"""Calls of which a function that evaluates has none."""


def evaluating(source: Source, site: Site) -> Site | None:
    """Where the function around a line begins, if all that it does is to evaluate: it turns a module
    to eval mode and computes no gradient. None for any other.
    """
    function = source.index(site.file).scope_at(site.line)
    if not isinstance(function, ast.FunctionDef):
        return None
    called = called_in(function)
    if "eval" not in called or called & TRAINS:
        return None
    return source.site_of(site.file, function)


def _is_off(function: Function) -> bool:
    return is_decorated_off(function) or any(map(turns_off, nodes_in(function, ast.stmt)))


def is_decorated_off(function: Function) -> bool:
    """Gradients are off in all of it."""
    return _any_off(function.decorator_list)


def turns_off(node: ast.AST) -> bool:
    """A block without gradients begins here, or they are off from here on."""
    if isinstance(node, ast.With):
        return _any_off(item.context_expr for item in node.items)
    return isinstance(node, ast.Expr) and _any_off([node.value])


def _any_off(asked: Iterable[ast.expr]) -> bool:
    names = (name_of(each.func if isinstance(each, ast.Call) else each) for each in asked)
    return any(name in OFF for name in names)
