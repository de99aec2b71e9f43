"""Which statement stores into a variable? Names the line that the user would edit."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from auditor.capture.instruments.notebook_cells import cells
from auditor.capture.instruments.variable_paths import NO_FILE, Place
from auditor.recordings.sources import content_of, decode_source
from auditor.syntax.index import LOOPS, name_of

_GROWING_CALLS = frozenset(
    "append appendleft extend extendleft add insert update setdefault put push".split()
)
_HARMLESS_CALLS = frozenset(
    {"defaultdict", "Counter", "float", "int", "str", "len", "bool"}
    | set("zeros ones empty full rand randn tensor arange eye as_tensor from_numpy".split())
    | {"zeros_like", "ones_like", "empty_like", "full_like", "randn_like", "rand_like"}
    | {"item", "detach", "tolist", "numpy", "clear", "init_hidden"}
)
"""Calls whose result has no graph: containers that begin empty, numbers, new tensors, tensors let
go.
"""


_CONTAINERS = frozenset({"list", "dict", "set", "tuple", "deque", "OrderedDict"})
"""Their results have a graph where what they are given has one."""

_KEPT_SO = frozenset({"clone", "to", "cpu", "cuda", "float", "half", "double", "contiguous"})
"""Methods whose result has a graph where their tensor has one."""


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
    """Variable and attributes that it stores under, subscripts left out: ``self.hist[i] = x`` is
    (self, hist).
    """
    grows: bool
    """It adds to what is there: an augmented assignment, ``append``, an item, or a value made from
    the old one, in one statement or by way of other variables of the function.
    """
    looped: bool = False
    """It is in a loop of its function."""
    in_place: bool = False
    """It writes into a tensor that is there: ``shadow.lerp_(weight, 0.1)``."""

    @property
    def rank(self) -> tuple[bool, bool, bool, bool]:
        """What is most likely to store a tensor with its graph comes first."""
        set_up = self.function == "<module>" and not self.looped
        first = self.function.endswith("__init__")
        return (first, self.in_place, not self.grows, set_up)


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


def _files(place: Place) -> list[str]:
    return cells() if place.file == NO_FILE else [place.file]


class Sources:
    """The user's files, parsed once each. With ``fresh`` also values that have no graph count: ``w
    = torch.rand(3)``.
    """

    def __init__(self, *, fresh: bool = False) -> None:
        self._fresh = fresh
        self._files: dict[str, SourceFile] = {}

    def find(self, place: Place) -> Found:
        """The statement that fills ``place``; ``line`` is None where none could be told."""
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

    def _attribute(self, place: Place, owner_file: str | None) -> tuple[str, Store] | None:
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
            known = self._files[file] = SourceFile(file, fresh=self._fresh)
        return known


class SourceFile:
    """All storing statements of one file. A file that cannot be read or parsed has none."""

    def __init__(self, file: str, *, fresh: bool = False) -> None:
        self._file = file
        self._fresh = fresh

    @cached_property
    def stores(self) -> list[Store]:
        """In the order of the source."""
        try:
            tree = ast.parse(decode_source(content_of(self._file)))
        except (OSError, SyntaxError, ValueError, RecursionError):
            return []
        reader = _Reader(fresh=self._fresh)
        found = list(reader.read(tree.body, "", (), ""))
        return [
            store
            if store.grows or store.chain not in reader.sources(store)
            else replace(store, grows=True)
            for store in found
        ]

    def variable(self, place: Place) -> list[Store]:
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

    def __init__(self, *, fresh: bool) -> None:
        self._harmless = (lambda value: False) if fresh else _harmless
        self._made_of: dict[tuple[int, ...], dict[_Chain, set[_Chain]]] = {}
        self._given: dict[tuple[int, _Chain], set[_Chain]] = {}
        self._looped_over: dict[tuple[tuple[int, ...], _Chain], set[_Chain]] = {}
        """Of a loop variable of a function: what the loop goes through."""

    def _note_loop(self, loop: ast.For | ast.AsyncFor, scopes: tuple[int, ...]) -> None:
        for target in _parts(loop.target):
            chain = _chain(target)
            if chain is not None:
                self._looped_over.setdefault((scopes, chain), set()).update(_mentioned(loop.iter))

    def sources(self, store: Store) -> set[_Chain]:
        """Chains that what the statement stores is made of, by way of others of its function."""
        made_of = self._made_of.get(store.scopes, {})
        found: set[_Chain] = set()
        waiting = list(self._given.get((store.line, store.chain), ()))
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting.extend(made_of.get(each, ()))
        return found

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
                inner, inside = _join(function, statement.name), (*scopes, first)
                for each in decorators:
                    called = each.func if isinstance(each, ast.Call) else each
                    if name_of(called) in ("cache", "lru_cache"):  # it keeps what is returned
                        yield Store(each.lineno, inner, inside, cls, (statement.name,), grows=True)
                yield from self.read(statement.body, inner, inside, cls)
            elif isinstance(statement, ast.ClassDef):
                yield from self.read(
                    statement.body, _join(function, statement.name), scopes, statement.name
                )
            else:
                for target, value in _flows(statement):
                    given = self._given[statement.lineno, target] = _mentioned(value)
                    self._made_of.setdefault(scopes, {}).setdefault(target, set()).update(given)
                where = (
                    statement.lineno,
                    function if scopes else "<module>",
                    scopes,
                    cls if scopes else "",
                )
                for chain, grows in _stored(statement, self._harmless):
                    yield Store(*where, chain, grows, looped)
                for chain in _written_into(statement, self._harmless):
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
    for field in ("body", "orelse", "finalbody"):
        block = getattr(statement, field, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield part.body


def _stored(
    statement: ast.stmt, harmless: Callable[[ast.expr], bool]
) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Chains that a statement itself may store a tensor under, and whether that grows."""
    if isinstance(statement, ast.AugAssign):
        if not harmless(statement.value):
            yield from _chained(statement.target, grows=True)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        if statement.value is None or harmless(statement.value):
            return
        mentioned = {_chain(node) for node in ast.walk(statement.value)}
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in (part for whole in targets for part in _parts(whole)):
            yield from _chained(
                target, grows=isinstance(target, ast.Subscript) or _chain(target) in mentioned
            )
    elif isinstance(statement, ast.Expr):
        yield from _called(statement.value, harmless)


def _flows(statement: ast.stmt) -> Iterator[tuple[_Chain, ast.expr]]:
    """What a statement fills, and what with: assignments, loop variables, lists appended to."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(statement, ast.Assign):
        pairs = [(target, statement.value) for target in statement.targets]
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and statement.value is not None:
        pairs = [(statement.target, statement.value)]
    elif isinstance(statement, (ast.For, ast.AsyncFor)):
        pairs = [(statement.target, statement.iter)]
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
        and statement.value.func.attr in _GROWING_CALLS
    ):
        pairs = [(statement.value.func.value, statement.value)]
    for whole, value in pairs:
        for target in _parts(whole):
            chain = _chain(target)
            if chain is not None:
                yield chain, value


def _mentioned(value: ast.expr) -> set[_Chain]:
    return {chain for node in ast.walk(value) if (chain := _chain(node)) is not None}


def _called(
    value: ast.expr, harmless: Callable[[ast.expr], bool]
) -> Iterator[tuple[tuple[str, ...], bool]]:
    if (
        not isinstance(value, ast.Call)
        or not isinstance(value.func, ast.Attribute)
        or value.func.attr not in _GROWING_CALLS
    ):
        return
    if not all(
        harmless(argument)
        for argument in (*value.args, *(keyword.value for keyword in value.keywords))
    ):
        yield from _chained(value.func.value, grows=True)


def _written_into(statement: ast.stmt, harmless: Callable[[ast.expr], bool]) -> Iterator[_Chain]:
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
            if chain is not None and not all(map(harmless, given[1:])):
                yield chain
            return
        carries = carries or not all(map(harmless, given))
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


def _chained(target: ast.expr, *, grows: bool) -> Iterator[tuple[tuple[str, ...], bool]]:
    chain = _chain(target)
    if chain is not None:
        yield chain, grows


def _chain(node: ast.AST) -> tuple[str, ...] | None:
    """``self.hist[i].setdefault(k, [])`` → (self, hist); None for what does not begin with a
    name.
    """
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


def _harmless(value: ast.expr) -> bool:
    """The value holds no tensor with a graph, as far as its form tells."""
    if isinstance(value, (ast.Constant, ast.JoinedStr, ast.Lambda, ast.Compare)):
        return True
    if isinstance(value, (ast.List, ast.Tuple, ast.Set)):
        return all(_harmless(element) for element in value.elts)
    if isinstance(value, ast.Dict):
        return all(_harmless(element) for element in value.values)
    if isinstance(value, ast.UnaryOp):
        return _harmless(value.operand)
    if isinstance(value, ast.BinOp):
        return _harmless(value.left) and _harmless(value.right)
    if isinstance(value, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _harmless(value.elt)
    if isinstance(value, ast.DictComp):
        return _harmless(value.value)
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Attribute) and value.func.attr in _KEPT_SO:
            return _harmless(value.func.value)
        name = (
            value.func.attr
            if isinstance(value.func, ast.Attribute)
            else getattr(value.func, "id", "")
        )
        if name in _CONTAINERS:
            return all(_harmless(argument) for argument in value.args)
        return name in _HARMLESS_CALLS
    return False
