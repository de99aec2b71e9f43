"""Where a program could compile what it trains: one line before its optimizer is made, or one line in
the class of blocks that its model repeats.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.source.files import Source, name_of
from auditor.model import Edit, Site
from auditor.permit import OPTIMIZERS, last

WHOLE, BLOCKS = "the model", "its repeated blocks"
"""What is compiled."""

REASON = "compiled code rounds in another order, and draws other random numbers"
_OPTIMIZERS = frozenset(map(last, OPTIMIZERS))
_PARAMETERS = ("parameters", "named_parameters")
_REPEATING = ("ModuleList", "Sequential")
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Expr, ast.Return)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def places(source: Source) -> dict[str, tuple[Edit, ...]]:
    """The edits that compile each part in place (``Module.compile()``, which keeps the names of
    weights); parts without a place are left out.
    """
    found = {WHOLE: tuple(_before_optimizers(source)), BLOCKS: tuple(_in_blocks(source))}
    return {part: edits for part, edits in found.items() if edits}


# -- before the optimizer --------------------------------------------------------------------------


def _before_optimizers(source: Source) -> Iterator[Edit]:
    for file in source.texts:
        done: set[tuple[str, str]] = set()
        for statement, around in _statements(source, file):
            if not _makes_optimizer(statement):
                continue
            modules = _modules(statement) or _modules_before(statement, around)
            where = around.name if around is not None else ""
            if len(modules) == 1 and (where, modules[0]) not in done:
                done.add((where, modules[0]))
                yield _edit(source, Site(file, statement.lineno, where), modules[0])


def _statements(source: Source, file: str) -> Iterator[tuple[ast.stmt, _Function | None]]:
    """Simple statements that run once, each with the function around it."""
    pending: list[tuple[ast.AST, _Function | None]] = [
        (node, None) for node in source.nodes(file) if isinstance(node, ast.Module)
    ]
    while pending:
        node, around = pending.pop()
        if isinstance(node, _SIMPLE):
            yield node, around
        elif not isinstance(node, ast.For | ast.AsyncFor | ast.While):
            inner = node if isinstance(node, _Function) else around
            inside = [each for each in ast.iter_child_nodes(node) if not _is_leaf(each)]
            pending += [(child, inner) for child in reversed(inside)]


def _is_leaf(node: ast.AST) -> bool:
    return isinstance(node, ast.expr | ast.expr_context | ast.operator | ast.alias)


def _makes_optimizer(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Call) and name_of(node.func) in _OPTIMIZERS and bool(node.args)
        for node in ast.walk(statement)
    )


def _modules(statement: ast.AST) -> tuple[str, ...]:
    """What is asked for its parameters, in order: names and attributes of names."""
    asked = (
        ast.unparse(node.func.value)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _PARAMETERS
        and _is_plain(node.func.value)
    )
    return tuple(dict.fromkeys(asked))


def _modules_before(statement: ast.stmt, around: _Function | None) -> tuple[str, ...]:
    """The same of the function's earlier statements, where groups of parameters are made first."""
    if around is None:
        return ()
    earlier = (each for each in around.body if each.lineno < statement.lineno)
    return tuple(dict.fromkeys(module for each in earlier for module in _modules(each)))


def _is_plain(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _edit(source: Source, site: Site, module: str) -> Edit:
    lines = source.texts[site.file].split("\n")
    text = lines[site.line - 1].strip() if site.line <= len(lines) else ""
    where = Site(site.file, site.line, site.function, text)
    return Edit(where, "insert_before", value=f"{module}.compile()", reason=REASON)


# -- in repeated blocks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Class:
    file: str
    node: ast.ClassDef


def _in_blocks(source: Source) -> Iterator[Edit]:
    """Of the outermost classes that are repeated: behind the line that makes the module."""
    classes: dict[str, list[_Class]] = {}
    for file in source.texts:
        for node in source.nodes(file):
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(_Class(file, node))
    repeated = {
        name
        for file in source.texts
        for name in _repeated(source, file)
        if len(classes.get(name, ())) == 1
    }
    for name in sorted(repeated):
        (cls,) = classes[name]
        others = (classes[other][0] for other in repeated - {name})
        if not any(_calls(other.node, name) for other in others):
            yield from _behind_init(source, cls)


def _repeated(source: Source, file: str) -> Iterator[str]:
    """Classes that a comprehension makes one after the other for a list of modules."""
    for call in source.nodes(file):
        if not isinstance(call, ast.Call) or name_of(call.func) not in _REPEATING:
            continue
        for node in (inner for each in call.args for inner in ast.walk(each)):
            if isinstance(node, ast.ListComp | ast.GeneratorExp) and isinstance(node.elt, ast.Call):
                yield name_of(node.elt.func)


def _calls(cls: ast.ClassDef, name: str) -> bool:
    return any(isinstance(node, ast.Call) and name_of(node.func) == name for node in ast.walk(cls))


def _behind_init(source: Source, cls: _Class) -> Iterator[Edit]:
    """Before the statement that follows ``super().__init__()``."""
    init = next(
        (
            each
            for each in cls.node.body
            if isinstance(each, ast.FunctionDef) and each.name == "__init__"
        ),
        None,
    )
    if init is None or not init.args.args:
        return
    for one, following in zip(init.body, init.body[1:], strict=False):
        if isinstance(one, ast.Expr) and _is_super_init(one.value):
            if isinstance(following, _SIMPLE):
                site = Site(cls.file, following.lineno, f"{cls.node.name}.__init__")
                yield _edit(source, site, init.args.args[0].arg)
            return


def _is_super_init(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and isinstance(node.func.value, ast.Call)
        and name_of(node.func.value.func) == "super"
    )
