"""One walk through a source file, and what is asked of it again and again: its nodes by kind, what
holds each, its calls by name and by line, its expressions by span, and the text of each of them.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar, overload
from weakref import WeakKeyDictionary

N = TypeVar("N", bound=ast.AST)
M = TypeVar("M", bound=ast.AST)
P = TypeVar("P", bound=ast.AST)
T = TypeVar("T")
V = TypeVar("V")

_texts: WeakKeyDictionary[ast.AST, str] = WeakKeyDictionary()


Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = Function | ast.Lambda | ast.ClassDef
Nodes = ast.AST | Iterable[ast.AST]

ADDS_ITEM = frozenset({"append", "appendleft", "add", "put"})
"""Calls that make their argument an item of what they are a method of."""

REACHES_ITEM = frozenset({"setdefault", "get"})

LOOPS = (ast.For, ast.AsyncFor, ast.While)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Span(NamedTuple):
    """A stretch of source as Python and edits have it: lines from 1, UTF-8 bytes from 0."""

    line: int
    end_line: int
    col: int
    end_col: int


class Index:
    """The nodes of one file, an outer one before those inside it as in ``ast.walk``. Each mapping is
    made when it is asked for first, in time that grows with the file and not with the questions.
    """

    def __init__(self, tree: ast.Module | None) -> None:
        self.tree = tree
        self.nodes, self.parents = family_of(tree) if tree is not None else ([], {})

    @cached_property
    def _by_kind(self) -> Mapping[type, Sequence[ast.AST]]:
        return grouped((type(node), node) for node in self.nodes)

    def of(self, kind: type[N]) -> Sequence[N]:
        """Nodes of exactly this class."""
        return self._by_kind.get(kind, ())  # type: ignore[return-value]

    @cached_property
    def calls(self) -> Mapping[str, Sequence[ast.Call]]:
        """Calls by the last name of what they call; by an empty one where that has none."""
        return grouped((name_of(call.func), call) for call in self.of(ast.Call))

    @cached_property
    def _on(self) -> Mapping[int, Sequence[ast.AST]]:
        placed = (node for node in self.nodes if hasattr(node, "lineno"))
        return grouped((line, node) for node in placed for line in lines_of(node))  # type: ignore[arg-type]

    @cached_property
    def assigned(self) -> Mapping[str, Sequence[ast.Assign]]:
        """Plain assignments by the text of each target."""
        return grouped((unparsed(to), node) for node in self.of(ast.Assign) for to in node.targets)

    @cached_property
    def named(self) -> Mapping[str, Sequence[ast.Name | ast.Attribute]]:
        """Variables and attributes by their last name, wherever they are read or given a value."""
        kinds = ast.Name | ast.Attribute
        return grouped((name_of(node), node) for node in self.nodes if isinstance(node, kinds))

    def up(self, node: ast.AST) -> Iterator[ast.AST]:
        """What holds a node, innermost first."""
        return above(node, self.parents)

    def holds(self, outer: ast.AST, inner: ast.AST) -> bool:
        """Whether a node is the other one, or holds it."""
        return inner is outer or any(each is outer for each in self.up(inner))

    def nearest(self, node: ast.AST, *kinds: type[N]) -> N | None:
        """The innermost node of these kinds around a node."""
        return next((each for each in self.up(node) if isinstance(each, kinds)), None)

    def scope_of(self, node: ast.AST) -> Function | ast.Module:
        """The innermost function around a node, else the module."""
        return next(each for each in self.up(node) if isinstance(each, Function | ast.Module))

    def on(self, line: int, *kinds: type[N]) -> Iterator[N]:
        """Nodes of these kinds that cover a line, outer ones first."""
        return (node for node in self._on.get(line, ()) if isinstance(node, kinds))

    def scope_at(self, line: int) -> Function | ast.Module | None:
        """The innermost function around a line, else the module."""
        return max(self.around(line), key=lambda node: node.lineno, default=self.tree)

    def around(self, line: int) -> list[Function]:
        """Functions and methods around a line, outer ones first."""
        return [node for node in self.on(line, ast.stmt) if isinstance(node, Function)]

    def defined_at(self, line: int) -> Iterator[Scope]:
        """Functions and classes that begin, or have a decorator, at a line; outer ones first."""
        return iter(self._defined.get(line, ()))

    @cached_property
    def _defined(self) -> Mapping[int, Sequence[Scope]]:
        return grouped(
            (line, node)
            for node in self.nodes
            if isinstance(node, SCOPES)
            for line in range(_begins(node), node.lineno + 1)
        )

    @cached_property
    def functions(self) -> Sequence[Function]:
        """Functions and methods, outer ones first."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def expressions(self) -> Mapping[Span, ast.expr]:
        """Expressions by span: the outermost where several have the same."""
        found = (node for node in reversed(self.nodes) if isinstance(node, ast.expr))
        return {span_of(node): node for node in found}


def family_of(tree: ast.AST) -> tuple[list[ast.AST], dict[ast.AST, ast.AST]]:
    """The nodes of a tree as ``ast.walk`` gives them, in a third of its time, and their parents."""
    nodes, parents = [tree], {}
    for node in nodes:  # grows as it is read
        for name in node._fields:
            value = getattr(node, name, None)
            for each in value if value.__class__ is list else (value,):
                if isinstance(each, ast.AST):
                    parents[each] = node
                    nodes.append(each)
    return nodes, parents


def parents_of(tree: ast.AST) -> dict[ast.AST, ast.AST]:
    """The parent of each node below ``tree``."""
    return family_of(tree)[1]


def above(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[ast.AST]:
    """What holds a node, innermost first."""
    while (parent := parents.get(node)) is not None:
        yield parent
        node = parent


@lru_cache(maxsize=4096)
def _below(node: ast.AST) -> tuple[Sequence[ast.AST], Mapping[type, Sequence[ast.AST]]]:
    nodes = family_of(node)[0]
    return nodes, grouped((type(each), each) for each in nodes)


@overload
def nodes_in(outer: Nodes, kind: type[N], /) -> Iterator[N]: ...
@overload
def nodes_in(outer: Nodes, kind: type[N], other: type[M], /) -> Iterator[N | M]: ...
@overload
def nodes_in(
    outer: Nodes, kind: type[N], other: type[M], third: type[P], /
) -> Iterator[N | M | P]: ...
def nodes_in(outer: Nodes, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
    """Nodes of these kinds in a node or in each of several, these among them, as ``ast.walk`` gives
    them. Each node is walked once, since the tree never changes.
    """
    for each in (outer,) if isinstance(outer, ast.AST) else outer:
        nodes, by_kind = _below(each)
        if len(kinds) == 1 and not kinds[0].__subclasses__():
            yield from by_kind.get(kinds[0], ())
        else:
            yield from (node for node in nodes if isinstance(node, kinds))


def called_in(outer: Nodes) -> set[str]:
    """Last names of what is called in a node, or in several."""
    return {name_of(call.func) for call in nodes_in(outer, ast.Call)}


def names_in(outer: Nodes, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Variables in a node, or in several; ``context``: those that are read or given a value."""
    return {node.id for node in nodes_in(outer, ast.Name) if isinstance(node.ctx, context)}


def grouped(pairs: Iterable[tuple[T, V]]) -> dict[T, list[V]]:
    """Values by key, in the order in which they come."""
    found: dict[T, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


@lru_cache(maxsize=1024)
def index_of(text: str) -> Index:
    """The index of a text, shared between callers; empty if it is not this version's Python."""
    try:
        return Index(ast.parse(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Index(None)


def unparsed(node: ast.AST) -> str:
    """What ``ast.unparse`` makes of a node, once for each. Nobody changes a node of an index."""
    if isinstance(node, ast.Name):
        return node.id
    text = _texts.get(node)
    if text is None:
        text = _texts[node] = ast.unparse(node)
    return text


def name_of(callee: ast.AST) -> str:
    """Last name of a called expression: ``backward`` for ``loss.backward``; else an empty one."""
    if isinstance(callee, ast.Attribute):
        return callee.attr
    return callee.id if isinstance(callee, ast.Name) else ""


def is_ordered(test: ast.expr) -> bool:
    """True if a test asks what is greater."""
    return any(
        isinstance(order, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        for each in nodes_in(test, ast.Compare)
        for order in each.ops
    )


def owner_of(call: ast.Call) -> str:
    """What a method is called on, as it is written; empty for a function."""
    return unparsed(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def root_of(node: ast.expr) -> ast.expr:
    """What attributes are asked of: ``self`` of ``self.net.head``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node


def is_path(node: ast.expr) -> bool:
    """True for a name, and for attributes of one: ``self.net.head``."""
    return isinstance(root_of(node), ast.Name)


def parameters_of(function: Function) -> list[str]:
    """Names of what a function may be given by position, the object of a method among them."""
    return [each.arg for each in (*function.args.posonlyargs, *function.args.args)]


def targets_of(node: ast.AST) -> Sequence[ast.expr]:
    """What a statement or a comprehension gives a value, each as it is written."""
    found = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return [each for each in found if isinstance(each, ast.expr)]


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements that a compound one holds, block by block; none of its handlers or cases."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list) and block:
            yield block


def run_in(body: Iterable[ast.AST], *unopened: type[ast.AST]) -> Iterator[ast.AST]:
    """Nodes that run with some statements; of what they define, or is ``unopened``, only itself."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (*SCOPES, *unopened)):
            waiting.extend(ast.iter_child_nodes(node))


def _begins(node: Scope) -> int:
    decorators = () if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(each.lineno for each in decorators)])


def lines_of(node: ast.stmt | ast.expr | ast.ExceptHandler) -> range:
    """Lines that a part of a file covers."""
    assert node.end_lineno is not None  # only of what no parser made
    return range(node.lineno, node.end_lineno + 1)


def span_of(node: ast.expr) -> Span:
    """Where an expression stands."""
    assert node.end_lineno is not None and node.end_col_offset is not None
    return Span(node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)
