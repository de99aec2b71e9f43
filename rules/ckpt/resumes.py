"""Checkpoints that a program goes on from, and what of the training it never puts there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from auditor.evidence.source.files import LOGS, Function, Index, Source, name_of, unparsed
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.syntax.index import LOOPS, Loop, called_in, nodes_in

from .trained_names import (
    OPTIMIZER,
    SCHEDULER,
    TrainedNames,
    functions_of,
    given,
    optimizers,
    parameters,
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
        index = source.index(file)
        for scope in (*index.of(ast.Module), *index.functions):
            assigns = (
                node
                for node in nodes_in(scope, ast.Assign)
                if isinstance(node.value, ast.Call) and unparsed(node.value.func) == "torch.load"
            )
            loaded = {name for node in assigns for name in targets(node)}
            for save in saves if loaded else ():
                yield from _in_scope(source, file, scope, loaded, save)


def _in_scope(
    source: Source, file: str, scope: Function | ast.Module, loaded: set[str], save: Save
) -> Iterator[_Resume]:
    keys = save.keys
    states_of = {key for key, value in keys.items() if _is_state(value)}
    lines = [
        call
        for call in nodes_in(scope, ast.Call)
        if name_of(call.func) == "load_state_dict"
        and any(key in states_of for each in call.args for key in _keys_read(each, loaded))
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
    for each in nodes_in(node, ast.Subscript, ast.Call):
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
    for node in nodes_in(scope, ast.Assign, ast.AnnAssign, ast.Return):
        value = node.value
        if value is None or any(nodes_in(value, ast.JoinedStr)) or called_in(value) & LOGS:
            continue
        if counter not in _keys_read(value, loaded):
            continue
        if isinstance(node, ast.Return) and isinstance(scope, Function):
            found.add(RETURNED + scope.name)
        elif not isinstance(node, ast.Return):
            found.update(targets(node))
    return frozenset(found)


def _begins_a_loop(source: Source, scope: ast.AST, into: frozenset[str]) -> bool:
    """True if a loop of the program begins, or goes on, by one of these names."""
    names = set(into)
    returned = (node.value for node in nodes_in(scope, ast.Return))
    if isinstance(scope, Function) and any(
        isinstance(value, ast.Name) and value.id in names for value in returned
    ):
        names.add(RETURNED + scope.name)
    assigns = [node for _, node in source.every(ast.Assign)]
    for node in assigns:
        if any(RETURNED + name in names for name in called_in(node.value)):
            names.update(targets(node))
    for _ in range(DEEP):  # names that are given the value of one of these as it is
        for node in assigns:
            if isinstance(node.value, ast.Name) and node.value.id in names:
                names.update(targets(node))
    loops = (loop for file in source.texts for loop in source.index(file).loops)
    return any(name in names for loop in loops for name in _turned_by(loop))


def _turned_by(loop: Loop) -> Iterator[str]:
    """Names that say where a loop begins or ends."""
    if isinstance(loop, ast.While):
        where: list[ast.expr] = [loop.test]
    else:
        where = [each for each in nodes_in(loop.iter, ast.Call) if name_of(each.func) in TURNS]
    return map(name_of, nodes_in(where, ast.Name, ast.Attribute))


# -- what is not there -----------------------------------------------------------------------------


def _unsaved(
    source: Source, saves: list[Save], resume: _Resume, known: TrainedNames
) -> Unsaved | None:
    if not known.made or _has_state(source, saves, known) or _made_anew(source, known):
        return None
    stepped = any(
        isinstance(call.func, ast.Attribute) and known.among(call.func.value)
        for _, call in source.calls_of("step")
    )
    if known.what == "scheduler" and (not stepped or _set_by_hand(source, known, resume)):
        return None
    # a schedule of schedules is made after its parts
    made = max(known.made, key=lambda each: (each.file, each.call.lineno))
    save = resume.save
    return Unsaved(
        known.what,
        made.kind,
        source.site_of(save.file, save.entries),
        source.site_of(save.file, save.call),
        source.site_of(resume.file, resume.line),
        source.site_of(made.file, made.call),
        resume.counter,
    )


def _made_anew(source: Source, known: TrainedNames) -> bool:
    """True if one is made in a loop, or in a function called in one: it begins anew by itself."""
    for made in known.made:
        index = source.index(made.file)
        around = function_around(index, made.call)
        if _in_a_loop(index, made.call, around):
            return True
        calls = [] if around is None or around.name == "__init__" else source.calls_of(around.name)
        if any(_in_a_loop(source.index(file), call, None) for file, call in calls):
            return True
    return False


def _in_a_loop(index: Index, node: ast.expr, function: Function | None) -> bool:
    first = 0 if function is None else function.lineno
    return any(first < loop.lineno < node.lineno for loop in index.on(node.lineno, *LOOPS))


def _has_state(source: Source, saves: list[Save], known: TrainedNames) -> bool:
    """True if its state may be asked for or loaded somewhere, or it is saved as it is."""
    saved = [call.args[0] for _, call in source.calls_of("save", "dump") if is_save(call)]
    return any(map(known.may_be, states(source))) or any(
        known.among(value) for value in (*saved, *(save.entries for save in saves))
    )


def _set_by_hand(source: Source, known: TrainedNames, resume: _Resume) -> bool:
    """True if the program brings the scheduler to where the training was in another way."""
    names = {name.removeprefix(RETURNED) for name in resume.into} | {"last_epoch"}
    for made in known.made:
        own = {each.arg for part in nodes_in(made.call, ast.Lambda) for each in part.args.args}
        inside = {
            each.arg or "" if isinstance(each, ast.keyword) else name_of(each)
            for each in nodes_in(made.call, ast.keyword, ast.Name, ast.Attribute)
        }
        if any(name in names or NOW.match(name) for name in inside - own):
            return True
    kinds = (ast.Call, ast.Assign, ast.For)
    return any(_brings(node, known) for kind in kinds for _, node in source.every(kind))


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


# -- saved parts -----------------------------------------------------------------------------------
# What a program hands to ``torch.save`` and its like, read off the source.


ELSEWHERE = frozenset(
    {"save_state", "save_checkpoint", "register_for_checkpointing", "save_training_state"}
)
"""What libraries call that save all they know of."""


@dataclass(frozen=True)
class Save:
    """A call that saves a dictionary."""

    file: str
    call: ast.Call
    entries: ast.Dict

    @property
    def keys(self) -> Mapping[str, ast.expr]:
        """What is saved under which key."""
        pairs = zip(self.entries.keys, self.entries.values, strict=True)
        return {
            key.value: value
            for key, value in pairs
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }


HOLDS = frozenset({"state_dict", "cpu", "detach", "stack", "cat", "tensor"})
"""Calls whose result is tensors, or a state whose owner is in the source."""

DEEP = 2
"""Names that are followed from one to the next."""


def saves_of(source: Source) -> list[Save] | None:
    """Dictionaries that are saved; None where something is saved that nobody can read off the
    source, or by a library.
    """
    found: list[Save] = []
    reader = _Reader(source)
    if any(name_of(call.func) not in reader.functions for _, call in source.calls_of(*ELSEWHERE)):
        return None
    for file, call in source.calls_of("save", "dump"):
        if not is_save(call):
            continue
        place = _Place(file, function_around(source.index(file), call))
        parts = reader.read(call.args[0] if call.args else None, place)
        if parts is None:
            return None
        found += [Save(file, call, each) for each in parts if isinstance(each, ast.Dict)]
    return found


def is_save(call: ast.Call) -> bool:
    """True of a call that writes a Python object to a file."""
    return unparsed(call.func) in ("torch.save", "pickle.dump", "dill.dump", "joblib.dump")


def function_around(index: Index, call: ast.Call) -> Function | None:
    """The innermost function around a call; None where it is in none."""
    scope = index.scope_of(call)
    return scope if isinstance(scope, Function) else None


@dataclass(frozen=True)
class _Place:
    """Where a name stands, and how many names led there."""

    file: str
    around: Function | None
    depth: int = 0

    @property
    def next(self) -> _Place:
        return replace(self, depth=self.depth + 1)


class _Reader:
    """Follows names to the dictionaries, states and constants they may be; None if unreadable."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.functions = functions_of(source)

    def read(self, value: ast.expr | None, place: _Place) -> list[ast.expr] | None:
        """What the expression may be."""
        if isinstance(value, ast.Dict):
            return [value] if None not in value.keys else None
        if isinstance(value, ast.Call):
            return [value] if name_of(value.func) in {*self.functions, *HOLDS} else None
        if isinstance(value, ast.Constant):
            return [value]
        if not isinstance(value, ast.Name) or place.depth > DEEP:
            return None
        function = place.around
        if function is not None and value.id in parameters(function):
            return _together(self._given(value.id, function, place.depth + 1))
        index = self._source.index(place.file)
        assigns = index.of(ast.Assign) if function is None else nodes_in(function, ast.Assign)
        made = [node.value for node in assigns if value.id in targets(node)]
        return _together([self.read(each, place.next) for each in made])

    def _given(self, name: str, function: Function, depth: int) -> list[list[ast.expr] | None]:
        return [
            self.read(value, _Place(file, function_around(self._source.index(file), call), depth))
            for file, call in self._source.calls_of(function.name)
            for parameter, value in given(function, call)
            if parameter == name
        ]


def _together(parts: list[list[ast.expr] | None]) -> list[ast.expr] | None:
    known = [each for part in parts if part is not None for each in part]
    return known if parts and None not in parts else None
