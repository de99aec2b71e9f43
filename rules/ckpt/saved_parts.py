"""What a program hands to ``torch.save`` and its like, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from auditor.evidence.source.files import Function, Source, name_of, unparsed

from .trained_names import functions_of, given, parameters, targets

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
"""Calls whose result is tensors, or a state whose owner stands in the source."""

DEEP = 2
"""Names that are followed from one to the next."""


def saves_of(source: Source) -> list[Save] | None:
    """Dictionaries that are saved; None where something is saved that nobody can read off the
    source, or by a library.
    """
    found: list[Save] = []
    reader = _Reader(source)
    for file, text in source.texts.items():
        for call, around in calls_of(source, file) if "save" in text or "dump" in text else ():
            name = name_of(call.func)
            if name in ELSEWHERE and name not in reader.functions:
                return None
            if not is_save(call):
                continue
            parts = reader.read(call.args[0] if call.args else None, _Place(file, around))
            if parts is None:
                return None
            found += [Save(file, call, each) for each in parts if isinstance(each, ast.Dict)]
    return found


def is_save(call: ast.Call) -> bool:
    """True of a call that writes a Python object to a file."""
    if name_of(call.func) not in ("save", "dump"):
        return False
    return unparsed(call.func) in ("torch.save", "pickle.dump", "dill.dump", "joblib.dump")


def calls_of(source: Source, file: str) -> Iterator[tuple[ast.Call, Function | None]]:
    """Calls, each with the innermost function around it."""
    nodes = list(source.nodes(file))
    around = [node for node in nodes if isinstance(node, Function)]
    for node in nodes:
        if isinstance(node, ast.Call):
            yield node, innermost(around, node)


def innermost(functions: list[Function], node: ast.expr | ast.stmt) -> Function | None:
    """Of these functions the innermost around the node; None where it stands in none."""
    inside = [
        each for each in functions if each.lineno <= node.lineno <= (each.end_lineno or each.lineno)
    ]
    return max(inside, key=lambda each: each.lineno, default=None)


@dataclass(frozen=True)
class _Place:
    """Where a name stands, and how many names led there."""

    file: str
    around: Function | None
    depth: int = 0

    @property
    def next(self) -> _Place:
        """The same place, one name on."""
        return replace(self, depth=self.depth + 1)


class _Reader:
    """Follows names to what they may be: dictionaries, states and constants; None where that
    cannot be read.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.functions = functions_of(node for file in source.texts for node in source.nodes(file))

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
        nodes = self._source.nodes(place.file) if function is None else ast.walk(function)
        made = [
            node.value
            for node in nodes
            if isinstance(node, ast.Assign) and value.id in targets(node)
        ]
        return _together([self.read(each, place.next) for each in made])

    def _given(self, name: str, function: Function, depth: int) -> list[list[ast.expr] | None]:
        return [
            self.read(value, _Place(file, around, depth))
            for file in self._source.texts
            for call, around in calls_of(self._source, file)
            if name_of(call.func) == function.name
            for parameter, value in given(function, call)
            if parameter == name
        ]


def _together(parts: list[list[ast.expr] | None]) -> list[ast.expr] | None:
    known = [each for part in parts if part is not None for each in part]
    return known if parts and None not in parts else None
