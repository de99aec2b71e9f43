"""What a program hands to ``torch.save`` and its like, read off the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace

from auditor.evidence.source.files import Function, Index, Source, name_of, unparsed
from auditor.syntax.index import nodes_in

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
        """The same place, one name on."""
        return replace(self, depth=self.depth + 1)


class _Reader:
    """Follows names to what they may be: dictionaries, states and constants; None where that
    cannot be read.
    """

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
