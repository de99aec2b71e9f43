"""Under which names a program holds its optimizers and its schedulers, and which of them it saves
or loads: read generously, so that what is not named surely is not there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from auditor.evidence.source.files import Function, Source, name_of

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

LOOSE = (ast.For, ast.AsyncFor, ast.comprehension)


@dataclass(frozen=True)
class Made:
    """A call that makes an optimizer or a scheduler, and what it is."""

    file: str
    call: ast.Call
    kind: str


class TrainedNames:
    """The names of what was made by ``made``, with those that it is handed on under. ``what``:
    ``optimizer`` or ``scheduler``.
    """

    def __init__(self, source: Source, what: str, made: Iterable[Made]) -> None:
        self.what, self.made = what, tuple(made)
        calls = {id(each.call) for each in self.made}
        trees = [node for file in source.texts for node in source.nodes(file)]
        self._assigns = [node for node in trees if isinstance(node, (ast.Assign, ast.AnnAssign))]
        self._calls = [node for node in trees if isinstance(node, ast.Call)]
        self._functions = functions_of(trees)
        self.names = {
            name for node in self._assigns if _makes(node, calls) for name in targets(node)
        }
        while more := self._handed_on() - self.names:
            self.names |= more

    def _handed_on(self) -> set[str]:
        found = {
            name
            for node in self._assigns
            if isinstance(node.value, (ast.Name, ast.Attribute))
            and name_of(node.value) in self.names
            for name in targets(node)
        }
        for call in self._calls:
            for function in self._functions.get(name_of(call.func), ()):
                found |= {
                    name
                    for name, value in given(function, call)
                    if isinstance(value, (ast.Name, ast.Attribute)) and name_of(value) in self.names
                }
        return found

    def among(self, node: ast.AST) -> bool:
        """True if a part of the expression has one of the names."""
        return any(
            isinstance(each, (ast.Name, ast.Attribute)) and name_of(each) in self.names
            for each in ast.walk(node)
        )


def functions_of(nodes: Iterable[ast.AST]) -> Mapping[str, list[Function]]:
    """The program's functions by name; a class stands for its ``__init__``."""
    found: dict[str, list[Function]] = {}
    for node in nodes:
        if isinstance(node, Function):
            found.setdefault(node.name, []).append(node)
        if isinstance(node, ast.ClassDef):
            begins = [each for each in node.body if isinstance(each, Function)]
            found.setdefault(node.name, []).extend(
                each for each in begins if each.name == "__init__"
            )
    return found


def parameters(function: Function) -> list[str]:
    """Names of what it is given by position, but for the object that a method belongs to."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def given(function: Function, call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Names of parameters, and what a call gives them."""
    yield from zip(parameters(function), call.args, strict=False)
    yield from ((each.arg, each.value) for each in call.keywords if each.arg is not None)


def targets(node: ast.Assign | ast.AnnAssign | ast.For | ast.AsyncFor) -> Iterator[str]:
    """Last names that are written to, inside tuples too."""
    written = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in written:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (name for part in parts if (name := name_of(part)))


def _makes(node: ast.Assign | ast.AnnAssign, calls: set[int]) -> bool:
    return node.value is not None and any(id(each) in calls for each in ast.walk(node.value))


def optimizers(source: Source) -> Iterator[Made]:
    """Calls that make an optimizer whose moments are worth keeping."""
    for file in source.texts:
        for node in source.nodes(file):
            kind = name_of(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and (kind in MOMENTS or _with_momentum(node, kind)):
                yield Made(file, node, kind)


def _with_momentum(call: ast.Call, kind: str) -> bool:
    value = next((each.value for each in call.keywords if each.arg == "momentum"), None)
    zero = isinstance(value, ast.Constant) and not value.value
    return kind == "SGD" and value is not None and not zero


def schedulers(source: Source) -> Iterator[Made]:
    """Calls that make a scheduler."""
    for file in source.texts:
        for node in source.nodes(file):
            kind = name_of(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and SCHEDULE.search(kind):
                yield Made(file, node, kind)


def loose_names(nodes: Iterable[ast.AST]) -> set[str]:
    """Names that stand for one thing after another: of loops, comprehensions and lambdas."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, LOOSE):
            found |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        if isinstance(node, ast.Lambda):
            found |= {each.arg for each in node.args.args}
    return found


def states(nodes: Iterable[ast.AST], method: str) -> Iterator[ast.expr]:
    """Of what ``state_dict`` or ``load_state_dict`` is asked, called or not."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr == method:
            yield node.value
