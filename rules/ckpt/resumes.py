"""Checkpoints that a program goes on from, and what of the training it never puts there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import LOGS, Function, Source, name_of, unparsed
from auditor.evidence.table import Evidence, Table
from auditor.model import Site

from .saved_parts import Save, calls_of, innermost, is_save, saves_of
from .trained_names import (
    OPTIMIZER,
    SCHEDULER,
    Made,
    TrainedNames,
    loose_names,
    optimizers,
    schedulers,
    states,
    targets,
)

COUNTER = re.compile(
    r"^(start|last|current|cur|global|next|resume)?_?(epoch|step|iter|iteration|update)s?"
    r"(_?(no|num|number|idx|index|count|run|done))?$",
    re.IGNORECASE,
)
"""Keys that say how far the training is."""

NOW = re.compile(
    r"^(start|last|current|cur|global|resume)?_?(epoch|step|iter|iteration|update)"
    r"(_?(no|num|number|idx|index|count))?$",
    re.IGNORECASE,
)
"""Names for where the training is; not ``epochs``, which is how long it is."""

TURNS = frozenset({"range", "trange", "islice", "enumerate", "count"})
"""Calls by which a loop begins where the training was."""


@dataclass(frozen=True)
class Unsaved:
    """A checkpoint with weights and a ``counter`` that training goes on from, and the optimizer or
    the scheduler that is never in it. ``kind``: its class, made at ``made``. ``saved`` and
    ``resumed`` are lines.
    """

    what: str
    kind: str
    site: Site
    saved: Site
    resumed: Site
    made: Site
    counter: str


@dataclass(frozen=True)
class Resumes(Table):
    """All of the program that is unsaved, by its recorded source; ``looked``: it has a checkpoint
    that training goes on from.
    """

    parts: ClassVar[tuple[str, ...]] = ()

    unsaved: tuple[Unsaved, ...] = ()
    looked: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> Resumes:
        """From the recorded source."""
        return resumes(evidence.get(Source))


@dataclass(frozen=True)
class _Resume:
    """A line that loads the weights of such a dictionary, in a function that reads its counter."""

    save: Save
    file: str
    line: ast.expr
    counter: str
    into: frozenset[str]
    """Names that the counter goes into."""


def resumes(source: Source) -> Resumes:
    """What a program that goes on from its own checkpoints never saves."""
    if not any("load_state_dict" in text for text in source.texts.values()):
        return Resumes()
    saves = saves_of(source)
    found = next(_resumed(source, saves or ()), None)
    if saves is None or found is None:
        return Resumes(looked=found is not None)
    parts = [
        _unsaved(source, saves, found, TrainedNames(source, "optimizer", optimizers(source))),
        _unsaved(source, saves, found, TrainedNames(source, "scheduler", schedulers(source))),
    ]
    return Resumes(tuple(part for part in parts if part is not None), looked=True)


# -- what is gone on from --------------------------------------------------------------------------


def _resumed(source: Source, saves: list[Save] | tuple[()]) -> Iterator[_Resume]:
    """Functions that load the weights of a saved dictionary and go on at its counter."""
    for file in source.texts:
        scopes = [node for node in source.nodes(file) if isinstance(node, (Function, ast.Module))]
        for scope in scopes:
            loaded = {
                name
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign) and _is_load(node.value)
                for name in targets(node)
            }
            for save in saves if loaded else ():
                yield from _in_scope(source, file, scope, loaded, save)


def _is_load(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and unparsed(value.func) == "torch.load"


def _in_scope(
    source: Source, file: str, scope: Function | ast.Module, loaded: set[str], save: Save
) -> Iterator[_Resume]:
    keys = save.keys
    states_of = {key for key, value in keys.items() if _is_state(value)}
    lines = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Call)
        and name_of(node.func) == "load_state_dict"
        and any(key in states_of for each in node.args for key in _keys_read(each, loaded))
    ]
    weights = [line for line in lines if not OTHERS.search(unparsed(line.func))]
    if not weights:
        return
    for counter in keys:
        into = _goes_into(scope, loaded, counter) if COUNTER.match(counter) else frozenset[str]()
        if into and _begins_a_loop(source, scope, into):
            yield _Resume(save, file, weights[0], counter, into)


def _is_state(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and name_of(value.func) == "state_dict"


def _keys_read(node: ast.AST, loaded: set[str]) -> Iterator[str]:
    """Keys that are read of what was loaded: ``state["model"]``, ``state.get("model")``."""
    for each in ast.walk(node):
        key: ast.expr | None = None
        if isinstance(each, ast.Subscript) and name_of(each.value) in loaded:
            key = each.slice
        elif (
            isinstance(each, ast.Call)
            and isinstance(each.func, ast.Attribute)
            and each.func.attr in ("get", "pop")
            and name_of(each.func.value) in loaded
        ):
            key = each.args[0] if each.args else None
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


OTHERS = re.compile(f"{OPTIMIZER.pattern}|{SCHEDULER.pattern}|scaler", re.IGNORECASE)
"""Names of what is loaded and holds no weights."""

RETURNED = "return "
"""Marks the name of a function among the names: what it returns."""


def _goes_into(scope: ast.AST, loaded: set[str], counter: str) -> frozenset[str]:
    """Names that the counter is assigned to, and the functions that return it."""
    found: set[str] = set()
    for node in ast.walk(scope):
        value = getattr(node, "value", None)
        if not isinstance(node, (ast.Assign, ast.AnnAssign, ast.Return)) or value is None:
            continue
        logged = any(
            isinstance(each, ast.JoinedStr)
            or (isinstance(each, ast.Call) and name_of(each.func) in LOGS)
            for each in ast.walk(value)
        )
        if logged or counter not in _keys_read(value, loaded):
            continue
        if isinstance(node, ast.Return) and isinstance(scope, Function):
            found.add(RETURNED + scope.name)
        elif not isinstance(node, ast.Return):
            found.update(targets(node))
    return frozenset(found)


def _begins_a_loop(source: Source, scope: ast.AST, into: frozenset[str]) -> bool:
    """True if a loop of the program begins, or goes on, by one of these names."""
    names = set(into)
    returned = {
        node.value.id
        for node in ast.walk(scope)
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Name)
    }
    if isinstance(scope, Function) and returned & names:
        names.add(RETURNED + scope.name)
    nodes = [node for file in source.texts for node in source.nodes(file)]
    for node in nodes:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Call) and RETURNED + name_of(each.func) in names
            for each in ast.walk(node.value)
        ):
            names.update(targets(node))
    while more := _assigned_of(nodes, names) - names:
        names |= more
    return any(name in names for node in nodes for name in _turned_by(node))


def _assigned_of(nodes: list[ast.AST], names: set[str]) -> set[str]:
    """Names that are given the value of one of these as it is."""
    return {
        name
        for node in nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        if node.value.id in names
        for name in targets(node)
    }


def _turned_by(node: ast.AST) -> Iterator[str]:
    """Names that say where a loop begins or ends."""
    where: list[ast.AST] = []
    if isinstance(node, ast.While):
        where = [node.test]
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        calls = [each for each in ast.walk(node.iter) if isinstance(each, ast.Call)]
        where = [each for each in calls if name_of(each.func) in TURNS]
    for each in where:
        yield from (
            name_of(part) for part in ast.walk(each) if isinstance(part, (ast.Name, ast.Attribute))
        )


# -- what is not there -----------------------------------------------------------------------------


def _unsaved(
    source: Source, saves: list[Save], resume: _Resume, known: TrainedNames
) -> Unsaved | None:
    nodes = [node for file in source.texts for node in source.nodes(file)]
    if not known.made or _has_state(nodes, saves, known) or _made_anew(source, known):
        return None
    by_hand = known.what == "scheduler" and (
        not _steps(nodes, known) or _set_by_hand(nodes, known, resume)
    )
    if by_hand:
        return None
    made, save = max(known.made, key=_last), resume.save
    return Unsaved(
        known.what,
        made.kind,
        source.site_of(save.file, save.entries),
        source.site_of(save.file, save.call),
        source.site_of(resume.file, resume.line),
        source.site_of(made.file, made.call),
        resume.counter,
    )


def _last(made: Made) -> tuple[str, int]:
    """A schedule of schedules is made after its parts."""
    return made.file, made.call.lineno


def _made_anew(source: Source, known: TrainedNames) -> bool:
    """True if one is made in a loop, or in a function that is called in one: it begins anew by
    itself.
    """
    for made in known.made:
        functions = [node for node in source.nodes(made.file) if isinstance(node, Function)]
        around = innermost(functions, made.call)
        if _in_a_loop(source.nodes(made.file), made.call, around):
            return True
        if around is not None and around.name != "__init__" and _called_in_a_loop(source, around):
            return True
    return False


def _called_in_a_loop(source: Source, function: Function) -> bool:
    return any(
        _in_a_loop(source.nodes(file), call, None)
        for file in source.texts
        for call, _ in calls_of(source, file)
        if name_of(call.func) == function.name
    )


def _in_a_loop(nodes: Iterator[ast.AST], node: ast.expr, function: Function | None) -> bool:
    first = 0 if function is None else function.lineno
    return any(
        first < each.lineno < node.lineno <= (each.end_lineno or 0)
        for each in nodes
        if isinstance(each, (ast.For, ast.AsyncFor, ast.While))
    )


def _has_state(nodes: list[ast.AST], saves: list[Save], known: TrainedNames) -> bool:
    """True if its state may be asked for or loaded somewhere, or it is saved as it is."""
    loose, likely = loose_names(nodes), OPTIMIZER if known.what == "optimizer" else SCHEDULER
    for method in ("state_dict", "load_state_dict"):
        for asked in states(nodes, method):
            text = unparsed(asked)
            if likely.search(text) or known.among(asked) or _unknown(asked, loose):
                return True
    saved = [node.args[0] for node in nodes if isinstance(node, ast.Call) and is_save(node)]
    return any(known.among(value) for value in (*saved, *(save.entries for save in saves)))


def _unknown(asked: ast.expr, loose: set[str]) -> bool:
    """True where it may be one thing after another, or whatever a call without arguments gives."""
    return any(
        isinstance(each, ast.Subscript)
        or (isinstance(each, ast.Call) and not each.args and not each.keywords)
        or (isinstance(each, ast.Name) and each.id in loose)
        for each in ast.walk(asked)
    )


def _steps(nodes: list[ast.AST], known: TrainedNames) -> bool:
    return any(
        isinstance(node, ast.Call)
        and name_of(node.func) == "step"
        and isinstance(node.func, ast.Attribute)
        and known.among(node.func.value)
        for node in nodes
    )


def _set_by_hand(nodes: list[ast.AST], known: TrainedNames, resume: _Resume) -> bool:
    """True if the program brings the scheduler to where the training was in another way."""
    names = {name.removeprefix(RETURNED) for name in resume.into} | {"last_epoch"}
    for made in known.made:
        parts = list(ast.walk(made.call))
        own = {
            each.arg for part in parts if isinstance(part, ast.Lambda) for each in part.args.args
        }
        inside = {
            each.arg or "" if isinstance(each, ast.keyword) else name_of(each)
            for each in parts
            if isinstance(each, (ast.keyword, ast.Name, ast.Attribute))
        }
        if any(name in names or NOW.match(name) for name in inside - own):
            return True
    return any(_brings(node, known) for node in nodes)


def _brings(node: ast.AST, known: TrainedNames) -> bool:
    """``scheduler.step(epoch)``, ``scheduler.last_epoch = epoch``, or a loop that only steps it."""
    if isinstance(node, ast.Call):
        told = bool(node.args or node.keywords) and name_of(node.func) == "step"
        return told and isinstance(node.func, ast.Attribute) and known.among(node.func.value)
    if isinstance(node, ast.Assign):
        written = [each for each in node.targets if isinstance(each, ast.Attribute)]
        return any(known.among(each.value) for each in written)
    if isinstance(node, ast.For) and len(node.body) == 1:
        return isinstance(node.body[0], ast.Expr) and known.among(node.body[0])
    return False
