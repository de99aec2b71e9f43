"""Which statement stores into a variable? Names the line that the user would edit."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from auditor.capture.instruments.user_frames import cells, source_path
from auditor.recordings.writer import content_of, decode_source
from auditor.syntax.index import LOOPS, blocks_of, name_of

NO_FILE = "?"
"""In the place of a module's file where it has none."""


@dataclass(frozen=True)
class TensorPath:
    """How a tensor is reached: from a variable of a function or a module, along a path."""

    file: str
    """:data:`NO_FILE` for what the cells of a notebook define together."""
    function: str
    """Qualified name of the variable's function; ``<module>`` for a global."""
    first_line: int
    """Of that function; 0 for a global."""
    name: str
    path: str = ""
    owner: type | None = None
    """Class of the last object whose attribute the path names."""
    attribute: str = ""
    """That attribute; what follows it in the path are only ``[*]``."""


Trail = TensorPath | tuple[Any, type | None, str]
"""A place not yet spelled out, since hardly any holds a graph: what it is in, then the class and
name of an attribute there, or None and nothing for an item of a container."""


def spelled(trail: Any) -> TensorPath:
    """The place at the end of a trail."""
    steps: list[tuple[type | None, str]] = []
    while not isinstance(trail, TensorPath):
        trail, owner, attribute = trail
        steps.append((owner, attribute))
    place = trail
    for owner, attribute in reversed(steps):
        if owner is None:
            place = replace(place, path=place.path + "[*]")
        else:
            place = replace(
                place, path=f"{place.path}.{attribute}", owner=owner, attribute=attribute
            )
    return place


_GROWING_CALLS = frozenset(
    "append appendleft extend extendleft add insert update setdefault put push".split()
)


@dataclass(frozen=True)
class Store:
    """One statement that may put a tensor somewhere."""

    line: int
    function: str
    """Qualified name of the function it stands in; ``<module>`` outside of all."""
    scopes: tuple[int, ...]
    """First lines of the functions around it, outermost first (decorators included)."""
    cls: str
    """Class whose method it stands in, if any."""
    chain: tuple[str, ...]
    """What it stores under, without subscripts: ``self.hist[i] = x`` is (self, hist)."""
    grows: bool
    """It adds to what is there: an augmented assignment, ``append``, or a value made of the old."""
    begins: bool = False
    """What it stores names no variable: a number, an empty list, ``torch.zeros(3)``."""
    looped: bool = False
    """It is in a loop of its function."""
    in_place: bool = False
    """It writes into a tensor that is there: ``shadow.lerp_(weight, 0.1)``."""

    @property
    def rank(self) -> tuple[bool, bool, bool, bool, bool, int]:
        """What is most likely to store a tensor with its graph comes first."""
        first, outside = self.function.endswith("__init__"), not self.looped
        return first, self.in_place, not self.grows, self.begins, outside, -len(self.scopes)


@dataclass(frozen=True)
class Found:
    """Where a place is filled, in words for the report."""

    file: str
    function: str
    name: str
    path: str
    line: int | None

    @property
    def root(self) -> str:
        """``trainer.py:Trainer.step:self.losses[*]``."""
        return f"{os.path.basename(self.file)}:{self.function}:{self.name}{self.path}"

    @property
    def fields(self) -> dict[str, Any]:
        """As a row has it."""
        return {**vars(self), "root": self.root, "file": source_path(self.file)}


def _files(place: TensorPath) -> list[str]:
    return cells() if place.file == NO_FILE else [place.file]


class Sources:
    """The user's files, parsed once each."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile] = {}

    def find(self, place: TensorPath) -> Found:
        """The statement that fills ``place``; ``line`` is None if none could be told."""
        if place.attribute:
            module = None if place.owner is None else sys.modules.get(place.owner.__module__)
            found = self._attribute(place, getattr(module, "__file__", None))
        else:
            found = self._best(
                (file, store)
                for file in _files(place)
                for store in self._file(file).variable(place)
            )
        if found is None:
            return Found(place.file, place.function, place.name, place.path, None)
        file, store = found
        items = place.path[len(place.path.rstrip("[*]")) :]
        path = "".join(f".{name}" for name in store.chain[1:])
        return Found(file, store.function, store.chain[0], path + items, store.line)

    def _attribute(self, place: TensorPath, owner_file: str | None) -> tuple[str, Store] | None:
        owners = {cls.__name__ for cls in place.owner.__mro__} if place.owner is not None else set()
        files = [file for file in dict.fromkeys((owner_file, *_files(place))) if file]
        stores = [
            (file, store) for file in files for store in self._file(file).attribute(place.attribute)
        ]
        # a method of the class itself, before anybody else who reaches in, but for a method that
        # only begins what others fill
        own = [each for each in stores if each[1].cls in owners]
        reaching = [each for each in stores if each[1].grows and each[1].chain[0] != "self"]
        filled = any(each[1].grows or each[1].in_place for each in own) or not reaching
        likely = (own if filled else reaching) or stores
        return self._best(each for each in likely if each[0] == likely[0][0])

    @staticmethod
    def _best(stores: Iterable[tuple[str, Store]]) -> tuple[str, Store] | None:
        return min(stores, key=lambda each: each[1].rank, default=None)

    def _file(self, file: str) -> SourceFile:
        known = self._files.get(file)
        if known is None:
            known = self._files[file] = SourceFile(file)
        return known


class SourceFile:
    """All storing statements of one file. A file that cannot be read or parsed has none."""

    def __init__(self, file: str) -> None:
        self._file = file

    @cached_property
    def stores(self) -> list[Store]:
        """In the order of the source."""
        try:
            tree = ast.parse(decode_source(content_of(self._file)))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        return list(_Reader().read(tree.body, "", (), ""))

    def variable(self, place: TensorPath) -> list[Store]:
        """Stores into a plain variable: in its function, else around or below it, else anywhere."""
        named = [store for store in self.stores if store.chain == (place.name,)]
        if place.function == "<module>":
            return named
        own = [s for s in named if s.scopes and s.scopes[-1] == place.first_line]
        if any(store.grows for store in own):
            return own
        around = {scope for s in self.stores if place.first_line in s.scopes for scope in s.scopes}
        return [s for s in named if around.intersection(s.scopes)] or own or named

    def attribute(self, name: str) -> list[Store]:
        """Stores into an attribute of anything."""
        return [store for store in self.stores if len(store.chain) > 1 and store.chain[-1] == name]


_Chain = tuple[str, ...]


class _Reader:
    """Walks statements and keeps track of the functions and classes around them."""

    def __init__(self) -> None:
        self._looped_over: dict[tuple[tuple[int, ...], _Chain], set[_Chain]] = {}
        """Of a loop variable of a function: what the loop goes through."""

    def _note_loop(self, loop: ast.For | ast.AsyncFor, scopes: tuple[int, ...]) -> None:
        for target in _parts(loop.target):
            chain = _chain(target)
            if chain is not None:
                self._looped_over.setdefault((scopes, chain), set()).update(_mentioned(loop.iter))

    def read(
        self,
        body: list[ast.stmt],
        function: str,
        scopes: tuple[int, ...],
        cls: str,
        *,
        looped: bool = False,
    ) -> Iterator[Store]:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                decorators = statement.decorator_list
                first = min([statement.lineno, *(each.lineno for each in decorators)])
                name, around = _join(function, statement.name), (*scopes, first)
                for each in decorators:
                    called = each.func if isinstance(each, ast.Call) else each
                    if name_of(called) in ("cache", "lru_cache"):  # it keeps what is returned
                        yield Store(each.lineno, name, around, cls, (statement.name,), grows=True)
                yield from self.read(statement.body, name, around, cls)
            elif isinstance(statement, ast.ClassDef):
                yield from self.read(
                    statement.body, _join(function, statement.name), scopes, statement.name
                )
            else:
                where = (
                    statement.lineno,
                    function if scopes else "<module>",
                    scopes,
                    cls if scopes else "",
                )
                for chain, grows, begins in _stored(statement):
                    yield Store(*where, chain, grows, begins, looped)
                for chain in _written_into(statement):
                    for each in {chain, *self._looped_over.get((scopes, chain), ())}:
                        yield Store(*where, each, grows=True, looped=looped, in_place=True)
                if isinstance(statement, (ast.For, ast.AsyncFor)):
                    self._note_loop(statement, scopes)
                inside = looped or isinstance(statement, LOOPS)
                for inner in _blocks(statement):
                    yield from self.read(inner, function, scopes, cls, looped=inside)


def _join(outer: str, name: str) -> str:
    return f"{outer}.{name}" if outer else name


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    yield from blocks_of(statement)
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _stored(statement: ast.stmt) -> Iterator[tuple[_Chain, bool, bool]]:
    """Chains that a statement itself may store a tensor under, and whether that grows or begins."""
    pairs: list[tuple[ast.expr, bool, ast.expr]] = []
    if isinstance(statement, ast.AugAssign):
        pairs = [(statement.target, True, statement.value)]
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
        mentioned = _mentioned(statement.value)
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        pairs = [
            (part, isinstance(part, ast.Subscript) or _chain(part) in mentioned, statement.value)
            for whole in targets
            for part in _parts(whole)
        ]
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr in _GROWING_CALLS
    ):
        pairs = [(statement.value.func.value, True, statement.value)]
    for each in ast.walk(statement) if isinstance(statement, ast.Expr) else ():
        kept = each.body if isinstance(each, ast.Lambda) else None  # a hook's, of what it is given
        if isinstance(kept, ast.Call) and name_of(kept.func) in _GROWING_CALLS:
            pairs += [(kept.func.value, True, kept)] if isinstance(kept.func, ast.Attribute) else []
    for target, grows, value in pairs:
        if (chain := _chain(target)) is not None:
            yield chain, grows, _begins(value)


def _mentioned(value: ast.expr) -> set[_Chain]:
    return {chain for node in ast.walk(value) if (chain := _chain(node)) is not None}


def _begins(value: ast.expr) -> bool:
    """No variable is named in it, but as the function that is called."""
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    waiting: list[ast.AST] = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            return False
        waiting += (each for each in ast.iter_child_nodes(node) if id(each) not in called)
    return True


def _written_into(statement: ast.stmt) -> Iterator[_Chain]:
    """Chains whose tensors a statement writes into by an operator in place, with what may have a
    graph: ``shadow.mul_(0.9).add_(weight)``, ``torch._foreach_lerp_(shadows, weights, 0.1)``.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    carries = False
    while isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        name = call.func.attr
        if not name.endswith("_") or name.endswith("__"):
            return
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if name.startswith("_foreach_"):
            chain = _chain(call.args[0]) if call.args else None
            if chain is not None and not all(map(_begins, given[1:])):
                yield chain
            return
        carries = carries or not all(map(_begins, given))
        chain = _chain(call.func.value)
        if chain is not None and carries:
            yield chain
        call = call.func.value


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _chain(node: ast.AST) -> tuple[str, ...] | None:
    """``self.hist[i].setdefault(k, [])`` → (self, hist); None if no name comes first."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Subscript):
        return _chain(node.value)
    if isinstance(node, ast.Attribute):
        outer = _chain(node.value)
        return None if outer is None else (*outer, node.attr)
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"setdefault", "get"}
    ):
        return _chain(node.func.value)
    return None
