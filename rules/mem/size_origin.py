"""Where the size of a batch is made: the line of a collate function, of a dataset or of the step
that pads, resizes or cuts it, when another line only moves it to the device.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from auditor.evidence.source.files import Function, Source, name_of
from auditor.model import Site
from auditor.syntax.index import names_in, nodes_in

MOVES = frozenset(("to", "cuda"))
PADS = frozenset(("pad_sequence", "pad", "interpolate", "resize", "crop", "random_crop"))
"""Last names of functions whose result has a size of its own."""
MAKES = frozenset(("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full"))
"""Last names of functions that are given a size."""
DRAWS = MAKES | {"rand", "randn", "randint", "normal"}
GIVES = ("__call__", "__getitem__", "__iter__")
"""Methods of a collating object and of a dataset that give batches or samples."""
DEPTH = 4
"""Names that are followed from one assignment to the next, at most."""

Place = tuple[str, int]
"""File and first line of a definition."""
Scope = ast.Module | Function | ast.Lambda


def size_made_at(source: Source, site: Site) -> Site | None:
    """The line that gives what the site's line moves its size; None where that line moves nothing,
    or no source tells.
    """
    moved = [
        call.func.value
        for call in source.calls_at(site)
        if isinstance(call.func, ast.Attribute) and call.func.attr in MOVES
    ]
    if not moved:
        return None
    scope = source.index(site.file).scope_at(site.line)
    assert scope is not None  # the line was recorded in it
    found = (_origin(source, scope, each, site) for each in moved)
    node = next((each for each in found if each is not None), None)
    if node is None:
        return next(_in_loaders(source), None)
    return None if node.lineno == site.line else source.site_of(site.file, node)


def _origin(source: Source, scope: Scope, moved: ast.expr, site: Site) -> ast.expr | None:
    """What in the site's file made the moved value, through assignments and its functions."""
    value, line = moved, site.line
    for _ in range(DEPTH):
        wanted = frozenset(DRAWS)
        made = next((node for node in nodes_in(value, ast.expr) if _gives_size(node, wanted)), None)
        if made is not None:
            return made
        name = name_of(value.func) if isinstance(value, ast.Call) else ""
        called = next(iter(source.index(site.file).functions_named.get(name, ())), None)
        if called is not None:
            return next(_sizings(called, DRAWS), None)
        given = _assigned(scope, value, line)
        if given is None:
            return None
        value, line = given.value, given.lineno
    return None


def _assigned(scope: Scope, value: ast.expr, line: int) -> ast.Assign | None:
    """Where the name in an expression was last given something above the line."""
    names = names_in(value)
    found = (
        node
        for node in nodes_in(scope, ast.Assign)
        if node.lineno < line and names_in(node.targets) & names
    )
    return max(found, key=lambda node: node.lineno, default=None)


def _in_loaders(source: Source) -> Iterator[Site]:
    """Lines that size what DataLoaders give: in the collate function, then in the dataset."""
    named = (_named_collates(source), MAKES), (_named_datasets(source), frozenset[str]())
    for places, names in named:
        for file, line in places:
            for function in _functions_at(source, file, line):
                for node in _sizings(function, names):
                    yield source.site_of(file, node)


def _functions_at(source: Source, file: str, line: int) -> Iterator[Function | ast.Lambda]:
    """What is defined there; of a class its methods that give samples or batches."""
    for node in source.index(file).defined_at(line):
        if not isinstance(node, ast.ClassDef):
            yield node
        else:
            methods = (item for item in node.body if isinstance(item, Function))
            yield from (item for item in methods if item.name in GIVES)


def _named_collates(source: Source) -> Iterator[Place]:
    """What ``collate_fn=`` names, if all files define one thing of that name; else nothing."""
    given = (node.value for _, node in source.every(ast.keyword) if node.arg == "collate_fn")
    names = {name_of(node) for node in nodes_in(given, ast.Name, ast.Attribute)}
    defined = (*source.functions, *source.every(ast.ClassDef))
    found = [(file, node.lineno) for file, node in defined if node.name in names]
    if len(found) == 1:
        yield from found


def _named_datasets(source: Source) -> Iterator[Place]:
    """The one class that gives samples; nothing where there are several."""
    found = [
        (file, node.lineno)
        for file, node in source.every(ast.ClassDef)
        if any(isinstance(item, Function) and item.name in GIVES[1:] for item in node.body)
    ]
    if len(found) == 1:
        yield from found


def _sizings(function: Function | ast.Lambda, makes: Iterable[str]) -> Iterator[ast.expr]:
    """Expressions in it that give a size, what pads before what only makes a tensor."""
    wanted = frozenset(makes)
    found = (node for node in nodes_in(function, ast.expr) if _gives_size(node, wanted))
    yield from sorted(
        found,
        key=lambda node: (
            not isinstance(node, ast.Call) or name_of(node.func) not in PADS,
            node.lineno,
        ),
    )


def _gives_size(node: ast.expr, makes: frozenset[str]) -> bool:
    if isinstance(node, ast.Call):
        name = name_of(node.func)
        return name in PADS or (name in makes and any(map(_computed, node.args[:4])))
    return isinstance(node, ast.Subscript) and any(
        isinstance(part, ast.Slice) and part.upper is not None and _computed(part.upper)
        for part in (node.slice.elts if isinstance(node.slice, ast.Tuple) else (node.slice,))
    )


def _computed(size: ast.expr) -> bool:
    """Whether a size is told by more than numbers: ``(len(batch), longest)``."""
    return any(nodes_in(size, ast.Name, ast.Attribute, ast.Call))
