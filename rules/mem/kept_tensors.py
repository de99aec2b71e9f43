"""Variables that hold more tensors without a graph after each step, or a larger one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from auditor.evidence.recorded.retained_graphs import grows
from auditor.evidence.source.files import Function, Index, Source, name_of, unparsed
from auditor.evidence.source.self_concatenation import JOINS, accumulated_at, joins, whole
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.memory import KeptRow
from auditor.syntax.index import COMPREHENSIONS, LOOPS, nodes_in

# -- bounds ----------------------------------------------------------------------------------------
# Which of the user's containers some line cuts, empties or begins anew.

CUTS = frozenset(
    ("clear", "pop", "popitem", "popleft", "remove", "truncate", "resize_", "rotate", "discard")
)
"""Methods that take something out of a container."""

ONCE = frozenset(("main", "__init__", "__post_init__", "setup", "build"))
"""Functions that run once, whoever calls them."""


class Bounds:
    """By the last name of the expression: ``history`` of ``self.history[name]``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cut: dict[str, frozenset[_Cut]] = {}
        self._single: dict[str, bool] = {}

    def cut(self, file: str, name: str, *, by_item: bool = True, once: bool = True) -> bool:
        """Whether a line of the file cuts what is called so (``self.seen[*]``), or, where it is an
        attribute, a line of any recorded file. Without ``by_item``, an item that is put into it
        (``seen[key] = x``) does not count: it is known to be a new one each time. Without ``once``,
        neither does what it begins with: a tensor, which has no limit.
        """
        if file not in self._source.texts:
            return True  # it cannot be told
        variable = name.split("[", 1)[0]
        files = self._source.texts if "." in variable else (file,)
        last = re.split(r"\W+", variable)[-1]
        return any(
            each.name == last and (by_item or not each.item) and (once or not each.once)
            for one in files
            for each in self._of(one)
        )

    def _of(self, file: str) -> frozenset[_Cut]:
        if file not in self._cut:
            index = self._source.index(file)
            found = (each for node in index.nodes for each in self._cuts(index, node))
            self._cut[file] = frozenset(found)
        return self._cut[file]

    def _cuts(self, index: Index, node: ast.AST) -> Iterator[_Cut]:
        if isinstance(node, ast.Delete):
            yield from (_Cut(_last(target)) for target in node.targets)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in CUTS or node.func.attr == "setdefault":
                yield _Cut(_last(node.func.value), item=node.func.attr not in CUTS)
        elif isinstance(node, ast.Compare):
            yield from _measured(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            once = self._once(index, node)
            for target, value in _given(node):
                if value is None or not _longer(target, value):
                    yield from _assigned(target, value, once=once)

    def _once(self, index: Index, node: ast.AST, inside: tuple[str, ...] = ()) -> bool:
        """Whether it runs a single time: in no loop, and in no function but such as run once."""
        for up in index.up(node):
            if isinstance(up, (*LOOPS, *COMPREHENSIONS, ast.Lambda)):
                return False
            if isinstance(up, Function):
                return up.name in ONCE or self._called_once(up.name, inside)
        return True

    def _called_once(self, name: str, inside: tuple[str, ...]) -> bool:
        """Whether nothing is done with what is called so but one call that runs a single time."""
        if name not in self._single:
            indices = [self._source.index(file) for file in self._source.texts]
            uses = [(index, use) for index in indices for use in index.named.get(name, ())]
            index, use = uses[0] if len(uses) == 1 else (None, None)
            call = index.parents[use] if index is not None and use is not None else None
            self._single[name] = (
                index is not None
                and isinstance(call, ast.Call)
                and call.func is use
                and name not in inside
                and self._once(index, call, (*inside, name))
            )
        return self._single[name]


class _Cut(NamedTuple):
    """A last name that some line cuts; ``item`` where it puts an item into it, ``once`` where it
    begins it a single time with what has a limit.
    """

    name: str
    item: bool = False
    once: bool = False


def _given(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Each target and its value, those of ``a, b = x, y`` one by one."""
    value = node.value
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _assigned(target: ast.expr, value: ast.expr | None, *, once: bool) -> Iterator[_Cut]:
    for each in nodes_in(target, ast.Subscript, ast.Name, ast.Attribute):
        if isinstance(each, ast.Subscript):
            yield _Cut(_last(each), item=not isinstance(each.slice, ast.Slice))
        elif isinstance(each.ctx, ast.Store) and (not once or _has_a_limit(value)):
            yield _Cut(_last(each), once=once)


def _measured(node: ast.Compare) -> Iterator[_Cut]:
    """``if len(seen) < 100``: it grows up to there."""
    if any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops):
        for each in (node.left, *node.comparators):
            if isinstance(each, ast.Call) and _last(each.func) == "len" and each.args:
                yield _Cut(_last(each.args[0]))


def _longer(target: ast.expr, value: ast.expr) -> bool:
    """``seen = seen + [x]``, ``bank = torch.cat([bank, x])``: all of it, and more."""
    value, name = whole(value), unparsed(target)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return name in (unparsed(value.left), unparsed(value.right))
    return isinstance(value, ast.Call) and name_of(value.func) in JOINS and joins(name, value)


def _has_a_limit(value: ast.expr | None) -> bool:
    """``deque(maxlen=100)``, ``LRUCache(100)``: nothing but the plain containers has none."""
    if isinstance(value, ast.Call):
        return not (
            _last(value.func) in ("list", "dict", "set", "defaultdict", "OrderedDict", "Counter")
            or (_last(value.func) == "deque" and len(value.args) < 2 and not value.keywords)
        )
    return not isinstance(
        value, (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Set, ast.Tuple, type(None))
    )


def _last(node: ast.expr) -> str:
    """The last name: ``history`` of ``self.history[name]``."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return name_of(node)


# -- kept tensors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keeper:
    """A variable and what it held at the end of each step. ``site`` is the line that fills it, None
    if it was not found. ``bounded``: some line cuts it, or begins it anew. ``joined``: what that
    line puts behind itself; ``keys`` as in ``KeptRow``. ``last_alone``: nothing but its last items
    is read.
    """

    name: str
    site: Site | None
    tensors: tuple[int, ...]
    nbytes: tuple[int, ...]
    devices: tuple[str, ...] = ()
    bounded: bool = False
    joined: str = ""
    keys: str = ""
    last_alone: bool = False

    @property
    def endless(self) -> bool:
        """Whether it is known to grow as long as the run: not a store that is full one day."""
        return bool(self.joined or self.keys or self.last_alone) and not self.bounded

    @property
    def bytes_per_step(self) -> float:
        """Bytes by which it grew, per step."""
        return (self.nbytes[-1] - self.nbytes[0]) / max(1, len(self.nbytes) - 1)


@dataclass(frozen=True)
class KeptTensors(Table):
    """Such variables of the loud pass, the one that grew most first."""

    parts: ClassVar[tuple[str, ...]] = ("kept",)

    keepers: tuple[Keeper, ...] = ()

    @classmethod
    def without_parts(cls, evidence: Evidence) -> KeptTensors:
        """Older recordings lack the part."""
        return cls()

    @classmethod
    def build(cls, evidence: Evidence) -> KeptTensors:
        """From the loud pass."""
        source = evidence.get(Source)
        bounds, last = Bounds(source), LastItems(source)
        keepers = [
            _keeper(evidence, row, source, bounds, last)
            for row in rows_of(evidence, KeptRow)
            if row.pass_name == "loud" and len(row.tensors) == len(row.nbytes)
        ]
        return cls(tuple(sorted(keepers, key=lambda each: -each.bytes_per_step)))

    def growing(self, share: float, *, device: bool) -> Iterator[Keeper]:
        """Those that hold more on ``share`` of the steps and never let go, on a device or in host
        memory, and whose line is known. One tensor that gets larger counts where it is joined.
        """
        return (
            each
            for each in self.keepers
            if each.site is not None
            and (grows(each.tensors, share) or (each.joined and grows(each.nbytes, share)))
            and ({"cpu"} != set(each.devices)) is device
        )


def _keeper(
    evidence: Evidence, row: KeptRow, source: Source, bounds: Bounds, last: LastItems
) -> Keeper:
    name = f"{row.name}{row.path}"
    site = evidence.recording.site_at(row.file, row.line, row.function) if row.line else None
    longer = accumulated_at(source, site) if site is not None else None
    file = site.file if site is not None else row.file
    bounded = bounds.cut(file, name, by_item=not row.keys, once=longer is None)
    return Keeper(
        name,
        site,
        tuple(row.tensors),
        tuple(row.nbytes),
        tuple(row.devices),
        bounded or (longer is not None and not longer.unbounded),
        longer.name if longer is not None else "",
        row.keys,
        last.suffice(file, name),
    )


# -- last items ------------------------------------------------------------------------------------
# Which of the user's lists are read at their end alone.


FILLS = frozenset(("append", "extend"))
"""Methods that put something at the end of a list."""


class LastItems:
    """By the last name of the expression: ``history`` of ``self.history``."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def suffice(self, file: str, name: str) -> bool:
        """Whether lines read the last items of what is called so (``self.seen[*]``), as
        ``seen[-1]``, and none could read another one; of an attribute, the lines of all recorded
        files. An unknown use, as an argument or a value that is returned, may read all of it.
        """
        variable = name.split("[", 1)[0]
        if file not in self._source.texts:
            return False  # it cannot be told
        files = self._source.texts if "." in variable else (file,)
        last = re.split(r"\W+", variable)[-1]
        indices = [self._source.index(one) for one in files]
        uses = {use for each in indices for use in (_uses(each, last) if each.tree else [None])}
        return None not in uses and True in uses


def _uses(index: Index, name: str) -> Iterator[bool | None]:
    """Of each use: True where it reads last items, False where it reads none, None where it may
    read any.
    """
    for node in index.nodes:
        if _may_name(node, name):
            yield None
        elif _named(node, name):
            yield _use(node, index.parents)


def _named(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == name
    return isinstance(node, ast.Name) and node.id == name


def _may_name(node: ast.AST, name: str) -> bool:
    """``getattr(self, "seen")``, ``vars(self)``, a parameter of that name."""
    if isinstance(node, ast.Constant):
        return bool(node.value == name)
    if isinstance(node, ast.arg):
        return node.arg == name
    return _named(node, "__dict__") or _named(node, "vars")


def _use(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool | None:
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return False
    outer = above[node]
    if isinstance(outer, ast.Subscript) and isinstance(outer.ctx, ast.Load):
        return True if outer.value is node and _from_end(outer.slice) else None
    if isinstance(outer, ast.Attribute) and outer.attr in FILLS:
        call = above[outer]
        return False if isinstance(call, ast.Call) and call.func is outer else None
    if isinstance(outer, ast.Call) and _named(outer.func, "len"):
        return False
    return False if _is_test(node, above) else None


def _is_test(node: ast.AST, above: dict[ast.AST, ast.AST]) -> bool:
    """``if seen``, ``while not seen and more``: only whether something is in it."""
    outer = above[node]
    while isinstance(outer, (ast.BoolOp, ast.UnaryOp)):
        node, outer = outer, above[outer]
    return isinstance(outer, (ast.If, ast.IfExp, ast.While)) and outer.test is node


def _from_end(index: ast.expr) -> bool:
    """``-1``, ``-2:``: places that stay as near to the end as they are."""
    if isinstance(index, ast.Slice):
        return index.upper is None and index.lower is not None and _from_end(index.lower)
    return (
        isinstance(index, ast.UnaryOp)
        and isinstance(index.op, ast.USub)
        and isinstance(index.operand, ast.Constant)
        and isinstance(index.operand.value, int)
    )
