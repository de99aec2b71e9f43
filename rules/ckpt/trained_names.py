"""Which optimizers and schedulers a program makes, and what may be one of them: read generously, so
that what is not named surely is not there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from auditor.evidence.source.files import Function, Source, name_of, unparsed
from auditor.syntax.index import grouped, nodes_in, parameters_of, targets_of

MOMENTS = frozenset(
    """
    Adam AdamW NAdam RAdam Adamax Adagrad Adadelta RMSprop Adafactor SparseAdam Lion LAMB AdamW8bit
    Adam8bit FusedAdam
    """.split()
)
"""Optimizers that keep moments of the gradients; SGD does with ``momentum``."""

SCHEDULE = re.compile(r"(LR|WarmRestarts|^get_\w*schedule\w*)$")
"""Classes and functions that make a scheduler, without ReduceLROnPlateau: it keeps a count of bad
epochs, and the rate comes back with the optimizer.
"""

OPTIMIZER = re.compile(r"opt|solver", re.IGNORECASE)
SCHEDULER = re.compile(r"sched|(^|_)lrs?(_|$)|lr_?s|warm|anneal|cosine", re.IGNORECASE)
"""How programs call them: whatever has such a name may be one."""

ELSE = re.compile(
    f"{OPTIMIZER.pattern}|{SCHEDULER.pattern}|scaler|model|net|module|critic|actor|"
    "policy|agent|student|teacher|former|backbone|head|gen|disc|encod|decod|vae|ema",
    re.IGNORECASE,
)
"""Names that tell what has a state: one of these, or weights."""


@dataclass(frozen=True)
class Made:
    """A call that makes an optimizer or a scheduler, and what it is."""

    file: str
    call: ast.Call
    kind: str


class TrainedNames:
    """What was made by ``made``. ``what``: ``optimizer`` or ``scheduler``."""

    def __init__(self, source: Source, what: str, made: Iterable[Made]) -> None:
        self.what, self.made = what, tuple(made)
        calls = {each.call for each in self.made}
        self._likely = OPTIMIZER if what == "optimizer" else SCHEDULER
        assigns: list[ast.Assign | ast.AnnAssign] = [
            *(node for _, node in source.every(ast.Assign)),
            *(node for _, node in source.every(ast.AnnAssign)),
        ]
        self._names = {
            name
            for node in assigns
            if node.value is not None and not calls.isdisjoint(nodes_in(node.value, ast.Call))
            for name in targets(node)
        }

    def among(self, node: ast.AST) -> bool:
        """True if a part of the expression has the name of one, or such a name."""
        named = map(name_of, nodes_in(node, ast.Name, ast.Attribute))
        return any(name in self._names or self._likely.search(name) for name in named)

    def may_be(self, owner: ast.expr) -> bool:
        """Whether what is asked for a state may be one: it is called so, or in no way that tells."""
        return self.among(owner) or not ELSE.search(unparsed(owner))


def functions_of(source: Source) -> Mapping[str, Sequence[Function]]:
    """The program's functions by name; a class stands for its ``__init__``."""
    begins = (
        (node.name, each)
        for _, node in source.every(ast.ClassDef)
        for each in node.body
        if isinstance(each, Function) and each.name == "__init__"
    )
    return grouped((*((node.name, node) for _, node in source.functions), *begins))


def parameters(function: Function) -> list[str]:
    """Names of what it is given by position, but for the object that a method belongs to."""
    names = parameters_of(function)
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def given(function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Names of parameters, and what a call gives them."""
    yield from zip(parameters(function), call.args, strict=False)
    yield from ((each.arg, each.value) for each in call.keywords if each.arg is not None)


def targets(node: ast.Assign | ast.AnnAssign | ast.For | ast.AsyncFor) -> Iterator[str]:
    """Last names that are written to, inside tuples too."""
    for target in targets_of(node):
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (name for part in parts if (name := name_of(part)))


def optimizers(source: Source) -> Iterator[Made]:
    """Calls that make an optimizer whose moments are worth keeping."""
    for file, call in source.calls_of(*MOMENTS, "SGD"):
        kind = name_of(call.func)
        if kind in MOMENTS or _with_momentum(call):
            yield Made(file, call, kind)


def _with_momentum(call: ast.Call) -> bool:
    value = next((each.value for each in call.keywords if each.arg == "momentum"), None)
    zero = isinstance(value, ast.Constant) and not value.value
    return value is not None and not zero


def schedulers(source: Source) -> Iterator[Made]:
    """Calls that make a scheduler."""
    for file, call in source.every(ast.Call):
        if SCHEDULE.search(name_of(call.func)):
            yield Made(file, call, name_of(call.func))


def states(source: Source) -> Iterator[ast.expr]:
    """Of what ``state_dict`` or ``load_state_dict`` is asked, called or not."""
    for _, node in source.every(ast.Attribute):
        if node.attr in ("state_dict", "load_state_dict"):
            yield node.value
