"""CKPT005 and 9: a checkpoint without state that a resume needs, and kept state that goes on."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.source.files import Function, Index, Source, name_of, unparsed
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import NotLooked, Rule, knob
from auditor.syntax.index import LOOPS, nodes_in, targets_of
from auditor.syntax.reaching import shared_names

from ..lines import places_of
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

    fewest: int = knob(2, "Report only a state kept over at least this many optimizer steps.")

    def detect(self, states: Rows[KeptStateRow], source: Source) -> Iterator[Finding]:
        for each in states:
            back = _back(each, source) if each.steps >= self.fewest else None
            if back is None:
                continue
            done = (
                f"it was loaded at {back}, {each.loaded} times"
                if each.loaded
                else f"{back} loads it"
            )
            yield Finding(
                each.site,
                f"the state of {each.module} kept here is not a copy: {each.steps} optimizer "
                f"steps changed its tensors, and {done}",
                steps=each.steps,
                per_step=1.0,
            )


def _back(state: KeptStateRow, source: Source) -> Site | None:
    if state.loaded and state.loaded_at is not None:
        return state.site_of(state.loaded_at)
    return None if state.loaded_at_once else brought_back(source, state.site)


# -- kept names ------------------------------------------------------------------------------------
# Is what a line keeps as a module's state brought back later?


ELSEWHERE_TOO = frozenset({"cpu", "to"})
"""Calls that copy only what lies on another device."""

BEST = "best"
"""What the name of a state says that is kept for later."""


@dataclass(frozen=True)
class _Kept:
    """A statement that keeps the state of what ``owners`` are called under ``name``; an attribute's
    in all files, a variable's in its function.
    """

    statement: ast.stmt
    name: str
    attribute: bool
    owners: list[str]


def brought_back(source: Source, site: Site) -> Site | None:
    """Where the state that the line keeps is loaded into what it was taken of (or, if it is called
    the best one, saved or returned), after a step in which it may not have been taken again; None
    if it is used at once, or never.
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
        calls, target = [*nodes_in(node.value, ast.Call)], targets_of(node)[0]
        owners = [
            name_of(each.func.value)
            for each in calls
            if isinstance(each.func, ast.Attribute) and each.func.attr == "state_dict"
        ]
        while isinstance(target, ast.Subscript):
            target = target.value
        copied = not ELSEWHERE_TOO.isdisjoint(name_of(each.func) for each in calls)
        if owners and not copied and isinstance(target, ast.Name | ast.Attribute):
            return _Kept(node, name_of(target), isinstance(target, ast.Attribute), owners)
    return None


def _uses(scope: ast.AST, kept: _Kept) -> Iterator[ast.expr | ast.stmt]:
    best, kind = BEST in kept.name.lower(), ast.Attribute if kept.attribute else ast.Name
    for node in nodes_in(scope, ast.Call, ast.Return):
        if isinstance(node, ast.Return):
            given, brings = node.value, best and not kept.attribute
        else:
            given, name = node.args[0] if node.args else None, name_of(node.func)
            brings = best and name == "save"
            if name == "load_state_dict" and isinstance(node.func, ast.Attribute):
                brings = name_of(node.func.value) in kept.owners
        read = nodes_in(given, kind) if brings and given is not None else ()
        if any(name_of(each) == kept.name for each in read):
            yield node


def _comes_later(index: Index, home: ast.AST, kept: _Kept, use: ast.expr | ast.stmt) -> bool:
    """False if a state is always taken before the use, or in every turn and used after the loop."""
    around = set(takewhile(lambda node: node is not home, index.up(kept.statement)))
    chosen = BEST in kept.name.lower() or any(isinstance(node, ast.If) for node in around)
    if not index.holds(home, use):
        return chosen
    above = takewhile(lambda node: node is not home, index.up(use))
    if any(isinstance(node, LOOPS) and node not in around for node in above):
        return True  # taken before the loop in which it is used
    return chosen and not index.holds(index.parents[kept.statement], use)


Lack = tuple[str, str, Severity]
"""What is missing, what happens without it, and how bad that is."""


class CheckpointCannotResume(Rule):
    """A training checkpoint lacks state that a resume needs."""

    code = "CKPT005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Save state_dict() of model, optimizer, scheduler and scaler, the step, and "
        "torch.get_rng_state()."
    )

    def detect(self, resumes: Resumes) -> Iterator[Finding]:
        if not resumes.looked:
            raise NotLooked("the recorded source has no checkpoint from which training resumes")
        for lack in resumes.unsaved:
            yield Finding(
                lack.site,
                f"this checkpoint holds weights and `{lack.counter}`, and training resumes from it "
                f"at {lack.resumed}, but the state of the {lack.kind} created at {lack.made} is never "
                "saved: after a resume its moments start from zero, and the loss jumps",
                steps=1,
                seen_on="source",
                severity=Severity.NOTE if lack.kind == "SGD" else None,
                places=places_of(lack.site, lack.resumed),
                remedy=Remedy(
                    "Add the optimizer's state_dict() to the checkpoint, and pass it to its "
                    "load_state_dict() where the weights are loaded."
                ),
            )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            lacks = (
                list(_lacks(checkpoint, in_half=checkpoints.in_half))
                if not checkpoint.scan.damage
                else []
            )
            if not lacks:
                continue
            yield checkpoint.finding(
                f"{checkpoint.name} holds no {' and no '.join(what for what, _, _ in lacks)}: "
                f"{lacks[0][1]}",
                *((f"without {what}", then) for what, then, _ in lacks),
                severity=min((severity for _, _, severity in lacks), key=lambda each: each.rank),
            )


def _lacks(checkpoint: Checkpoint, *, in_half: bool) -> Iterator[Lack]:
    scan = checkpoint.scan
    if not checkpoint.weights or not (scan.optimizers or scan.schedulers or scan.scaler):
        return
    if not scan.optimizers:
        yield "optimizer state", "its moments start from zero, and the loss jumps", Severity.WARNING
        return
    driven = any(
        "initial_lr" in group for optimizer in scan.optimizers for group in optimizer.groups
    )
    if driven and not scan.schedulers:
        yield ("scheduler", "the schedule that set the rates starts over", Severity.WARNING)
    if in_half and not scan.scaler:
        yield (
            "GradScaler state",
            "its scale starts over at 65536, and the first steps overflow",
            Severity.WARNING,
        )
    if checkpoint.steps is None and not any(each.position is not None for each in scan.schedulers):
        yield "step or epoch", "nothing says where the training was", Severity.WARNING
    if not scan.rng:
        yield (
            "random states",
            "shuffling and dropout do not continue where they stopped",
            Severity.NOTE,
        )


# -- resumes ---------------------------------------------------------------------------------------
# Checkpoints that a program goes on from, without an optimizer's state in them, by its source. What
# may be an optimizer is read generously, so that what is not named surely is not there.

COUNTER = re.compile(
    r"^(start|last|current|cur|global|next|resume)?_?(epoch|step|iter|iteration|update)s?"
    r"(_?(no|num|number|idx|index|count|run|done))?$",
    re.IGNORECASE,
)
"""Keys that say how far the training is, and names that do."""

TURNS = frozenset({"range", "trange", "islice", "enumerate", "count"})
"""Calls by which a loop begins where the training was."""

ELSEWHERE = ("save_state", "save_checkpoint", "register_for_checkpointing", "save_training_state")
"""What libraries call that save all they know of."""

HOLDS = frozenset({"state_dict", "cpu", "detach", "stack", "cat", "tensor"})
"""Calls whose result is tensors, or a state whose owner is in the source."""

MOMENTS = frozenset(
    """
    Adam AdamW NAdam RAdam Adamax Adagrad Adadelta RMSprop Adafactor SparseAdam Lion LAMB AdamW8bit
    Adam8bit FusedAdam
    """.split()
)
"""Optimizers that keep moments of the gradients; SGD does with ``momentum``."""

OPTIMIZER = re.compile(r"opt|solver", re.IGNORECASE)
"""How programs call an optimizer: whatever has such a name may be one."""

OTHERS = re.compile(r"opt|solver|sched|(^|_)lrs?(_|$)|warm|scaler", re.IGNORECASE)
"""Names of what is loaded and holds no weights."""

ELSE = re.compile(
    f"{OTHERS.pattern}|lr_?s|anneal|cosine|model|net|module|critic|actor|policy|agent|student|teacher|"
    "former|backbone|head|gen|disc|encod|decod|vae|ema",
    re.IGNORECASE,
)
"""Names that tell what has a state: one of these, or weights."""


@dataclass(frozen=True)
class Unsaved:
    """A checkpoint with weights and a ``counter`` that training resumes from at ``resumed``, and an
    optimizer that is never in it. ``kind``: its class, made at ``made``.
    """

    kind: str
    site: Site
    resumed: Site
    made: Site
    counter: str


@dataclass(frozen=True)
class Resumes(Table):
    """All that the source leaves unsaved; ``looked``: it has a checkpoint that training resumes."""

    unsaved: tuple[Unsaved, ...] = ()
    looked: bool = False

    @classmethod
    def build(cls, evidence: Evidence) -> Resumes:
        return resumes(evidence.get(Source))


def resumes(source: Source) -> Resumes:
    """The optimizer that a program which goes on from its own checkpoints never saves."""
    loads = any("torch.load(" in text for text in source.texts.values())
    found = next(_gone_on_from(source), None) if loads and any(_saves(source)) else None
    if found is None:
        return Resumes()
    site, resumed, counter = found
    if not _tells_what_it_saves(source):
        return Resumes(looked=True)
    made = [(file, call) for file, call in source.every(ast.Call) if _keeps_moments(call)]
    if not made or _may_come_back(source, made, counter):
        return Resumes(looked=True)
    file, call = max(made, key=lambda each: (each[0], each[1].lineno))
    kind = name_of(call.func)
    unsaved = Unsaved(kind, site, resumed, source.site_of(file, call), counter)
    return Resumes((unsaved,), looked=True)


def _gone_on_from(source: Source) -> Iterator[tuple[Site, Site, str]]:
    """Dictionaries with a counter and a state, its loading line, and a loop's counter after it."""
    loads = [(file, call) for file, call in source.calls_of("load_state_dict")]
    for file, node in source.every(ast.Dict) if loads else ():
        entries = {
            key.value: value
            for key, value in zip(node.keys, node.values, strict=True)
            if isinstance(key, ast.Constant) and isinstance(key.value, str)
        }
        weights = {key for key, value in entries.items() if _calls(value, "state_dict")}
        for counter in filter(COUNTER.match, entries):
            for at, call in loads:
                read = any(weights & {*_keys_read(each)} for each in call.args)
                if read and not OTHERS.search(unparsed(call.func)) and _loops_by(source, counter):
                    yield source.site_of(file, node), source.site_of(at, call), counter


def _calls(value: ast.expr, name: str) -> bool:
    return isinstance(value, ast.Call) and name_of(value.func) == name


def _keys_read(node: ast.AST) -> Iterator[str]:
    """``state["model"]``, ``state.get("model")``."""
    for each in nodes_in(node, ast.Subscript, ast.Call):
        key: ast.expr | None = None
        if isinstance(each, ast.Subscript):
            key = each.slice
        elif name_of(each.func) in ("get", "pop") and each.args:
            key = each.args[0]
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value


def _loops_by(source: Source, counter: str) -> bool:
    """Whether a loop begins, or goes on, by a name that the counter went into, also by calls."""
    names, grown = set[str](), -1
    given = [(node.value, _written_to(node)) for node in _assigns(source)]
    given += [
        (node.value, [function.name])
        for _, function in source.functions
        for node in nodes_in(function, ast.Return)
    ]
    while grown != len(names):
        grown = len(names)
        for value, targets in given:
            if value is None or any(nodes_in(value, ast.JoinedStr)):
                continue
            if counter in _keys_read(value) or not names.isdisjoint(_last_names(value)):
                names.update(targets)
    turned = [loop.test for _, loop in source.every(ast.While)]
    turned += [
        call
        for _, loop in source.every(ast.For)
        for call in nodes_in(loop.iter, ast.Call)
        if name_of(call.func) in TURNS
    ]
    return not names.isdisjoint(_last_names(turned))


def _assigns(source: Source) -> list[ast.Assign | ast.AnnAssign]:
    plain = [node for _, node in source.every(ast.Assign)]
    return [*plain, *(node for _, node in source.every(ast.AnnAssign))]


def _written_to(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Last names, inside tuples too."""
    return [name_of(part) for each in targets_of(node) for part in getattr(each, "elts", [each])]


def _last_names(nodes: ast.AST | Iterable[ast.AST]) -> set[str]:
    return set(map(name_of, nodes_in(nodes, ast.Name, ast.Attribute)))


# -- what is saved ---------------------------------------------------------------------------------


def _saves(source: Source) -> Iterator[tuple[str, ast.expr]]:
    for file, call in source.calls_of("save", "dump"):
        writes = unparsed(call.func) in ("torch.save", "pickle.dump", "dill.dump", "joblib.dump")
        if writes and call.args:
            yield file, call.args[0]


def _tells_what_it_saves(source: Source) -> bool:
    """False if something is saved that the source does not show, or by a library."""
    own = {node.name for _, node in (*source.functions, *source.every(ast.ClassDef))}

    def tells(value: ast.expr) -> bool:
        if isinstance(value, ast.Dict):
            return None not in value.keys
        if isinstance(value, ast.Call):
            return name_of(value.func) in own | HOLDS
        return isinstance(value, ast.Name | ast.Constant)

    saved = [*_saves(source)]
    for file, value in tuple(saved):
        saved += [
            (file, node.value) for node in source.index(file).assigned.get(unparsed(value), ())
        ]
    library = any(name_of(call.func) not in own for _, call in source.calls_of(*ELSEWHERE))
    return not library and all(tells(value) for _, value in saved)


Made = tuple[str, ast.Call]
"""File and call that make an optimizer."""


def _may_come_back(source: Source, made: list[Made], counter: str) -> bool:
    """Whether an optimizer may be saved or loaded somewhere, or starts again by itself."""
    calls = {call for _, call in made}
    names = {
        name
        for node in _assigns(source)
        if not calls.isdisjoint(nodes_in(node.value or (), ast.Call))
        for name in _written_to(node)
    }

    def may_be_one(node: ast.AST) -> bool:
        return any(name in names or OPTIMIZER.search(name) for name in _last_names(node))

    for _, node in source.every(ast.Attribute):
        if node.attr in ("state_dict", "load_state_dict") and (
            may_be_one(node.value) or not ELSE.search(unparsed(node.value))
        ):
            return True
    saved = [value for _, value in _saves(source)]
    saved += [node for _, node in source.every(ast.Dict) if counter in _constants(node.keys)]
    return any(map(may_be_one, saved)) or any(_in_a_loop(source, *each) for each in made)


def _in_a_loop(source: Source, file: str, call: ast.Call, *, followed: bool = True) -> bool:
    """Whether it is made in a loop, or in a function that is called in one."""
    index = source.index(file)
    scope = index.scope_of(call)
    first = scope.lineno if isinstance(scope, Function) and followed else 0
    if any(first < loop.lineno < call.lineno for loop in index.on(call.lineno, *LOOPS)):
        return True
    name = scope.name if isinstance(scope, Function) else "__init__"
    calls = source.calls_of(name) if followed and name != "__init__" else ()
    return any(_in_a_loop(source, *each, followed=False) for each in calls)


def _constants(nodes: Iterable[ast.expr | None]) -> set[object]:
    return {each.value for each in nodes if isinstance(each, ast.Constant)}


def _keeps_moments(call: ast.Call) -> bool:
    momentum = next((each.value for each in call.keywords if each.arg == "momentum"), None)
    zero = isinstance(momentum, ast.Constant) and not momentum.value
    kind = name_of(call.func)
    return kind in MOMENTS or (kind == "SGD" and momentum is not None and not zero)
