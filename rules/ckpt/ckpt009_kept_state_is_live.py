"""CKPT009: a state that is kept for later follows the training."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from auditor.evidence.source.files import Index, Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import LOOPS, nodes_in, targets_of
from auditor.syntax.reaching import shared_names

from .rows import KeptStateRow


@dataclass(frozen=True)
class KeptStateIsLive(Rule):
    """A kept state_dict() is not a copy: it follows the training."""

    code = "CKPT009"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Keep copy.deepcopy(model.state_dict()), or {name: value.clone() for name, value in "
        "model.state_dict().items()}."
    )

    fewest: int = knob(2, "Report only if the state was kept over this many optimizer steps.")

    def detect(self, states: Rows[KeptStateRow], source: Source) -> Iterator[Finding]:
        for each in states:
            back = _back(each, source) if each.steps >= self.fewest else None
            if back is None:
                continue
            done = (
                f"it was loaded at {back}, {each.loaded} times"
                if each.loaded
                else f"{back} brings it back"
            )
            yield Finding(
                each.site,
                f"the state of {each.module} kept here is not a copy: {each.steps} optimizer "
                f"steps changed its tensors, and {done}",
                steps=each.steps,
                per_step=1.0,
                facts=(("brought back at", str(back)),),
            )


def _back(state: KeptStateRow, source: Source) -> Site | None:
    if state.loaded and state.loaded_at is not None:
        return state.site_of(state.loaded_at)
    return None if state.loaded_at_once else brought_back(source, state.site)


# -- kept names ------------------------------------------------------------------------------------
# Is what a line keeps as a module's state brought back later?


SHALLOW = frozenset({"dict", "OrderedDict", "copy"})
"""Calls that make another container of the same tensors."""

BEST = "best"
"""What the name of a state says that is kept for later."""


@dataclass(frozen=True)
class _Kept:
    """A statement that keeps the state of what is called ``owner`` under ``name``; an attribute's
    in all files, a variable's in its function.
    """

    statement: ast.stmt
    name: str
    attribute: bool
    owner: str


def brought_back(source: Source, site: Site) -> Site | None:
    """Where the state that the line keeps is loaded into what it was taken of (or, if it is called
    the best one, saved or returned), behind a step in which it may not have been taken anew; None
    where it is used at once, or no more.
    """
    index = source.index(site.file)
    kept = _kept(index, site.line)
    if kept is None:
        return None
    home = index.scope_of(kept.statement)
    if kept.attribute or isinstance(home, ast.Module) or kept.name in shared_names(home):
        scopes: Iterable[tuple[str, ast.AST]] = source.every(ast.Module)
    else:
        scopes = [(site.file, home)]
    for file, scope in scopes:
        for use in _uses(scope, kept):
            if _comes_later(index, home, kept, use):
                return source.site_of(file, use)
    return None


def _kept(index: Index, line: int) -> _Kept | None:
    for node in index.on(line, ast.stmt):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        owner, target = _owner(node.value), targets_of(node)[0]
        while isinstance(target, ast.Subscript):
            target = target.value
        if owner and isinstance(target, ast.Name | ast.Attribute):
            return _Kept(node, name_of(target), isinstance(target, ast.Attribute), owner)
    return None


def _owner(value: ast.expr) -> str:
    """What is called last before ``.state_dict()``, where the value holds that call's tensors."""
    if isinstance(value, ast.Dict):
        return next((owner for each in value.values if (owner := _owner(each))), "")
    if isinstance(value, ast.DictComp) and isinstance(value.value, ast.Name):
        return _owner(value.generators[0].iter)
    if not isinstance(value, ast.Call):
        return ""
    called = value.func
    if name_of(called) == "state_dict" and isinstance(called, ast.Attribute):
        return name_of(called.value)
    inner = value.args[0] if value.args else None
    if inner is None and isinstance(called, ast.Attribute):
        inner = called.value
    if inner is None or name_of(called) not in (*SHALLOW, "items"):
        return ""
    return _owner(inner)


def _uses(scope: ast.AST, kept: _Kept) -> Iterator[ast.expr | ast.stmt]:
    best = BEST in kept.name.lower()
    for node in nodes_in(scope, ast.Call, ast.Return):
        if isinstance(node, ast.Return):
            given, brings = node.value, best and not kept.attribute
        else:
            given, name = node.args[0] if node.args else None, name_of(node.func)
            brings = best and name == "save"
            if name == "load_state_dict" and isinstance(node.func, ast.Attribute):
                brings = name_of(node.func.value) == kept.owner
        if brings and given is not None and _mentions(given, kept):
            yield node


def _mentions(value: ast.expr, kept: _Kept) -> bool:
    kind = ast.Attribute if kept.attribute else ast.Name
    return any(name_of(node) == kept.name for node in nodes_in(value, kind))


def _comes_later(index: Index, home: ast.AST, kept: _Kept, use: ast.expr | ast.stmt) -> bool:
    """False where a state is always taken before the use in the same turn of a loop, and where one
    is taken in every turn and used behind the loop.
    """
    around = set(takewhile(lambda node: node is not home, index.up(kept.statement)))
    chosen = BEST in kept.name.lower() or any(isinstance(node, ast.If) for node in around)
    if not index.holds(home, use):
        return chosen
    above = takewhile(lambda node: node is not home, index.up(use))
    if any(isinstance(node, LOOPS) and node not in around for node in above):
        return True  # taken before the loop in which it is used
    return chosen and not index.holds(index.parents[kept.statement], use)
