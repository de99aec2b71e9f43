"""What still holds autograd graphs after a step, for how long, and which line put it there."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field

import torch

from auditor.capture.instruments.assignment_sites import Found, Sources, TensorPath
from auditor.capture.instruments.autograd_graph import (
    NODE_CAP,
    Backward,
    Node,
    Walk,
    node_of,
    saved_bytes,
)
from auditor.capture.instruments.object_search import ObjectSearch
from auditor.capture.instruments.torch_private.autograd import CAN_WEIGH
from auditor.capture.probes.base import Context, Probe
from auditor.machine import uncollected
from auditor.recordings.schema.graph import GraphRow

_MARK = "audit.born"
"""Key in a node's metadata: since when a tensor of the user's has held it."""

_WALKED = "audit.walked"
"""Key in a node's metadata: a backward walked it, and whether it was stored by then."""

LOOKS = 256
"""Backwards of a pass whose walks are searched for, 5 ms each at most; no later ones are."""

ROOTS = 64
"""Roots written in one step at most."""


@dataclass
class _Root:
    """A variable that was seen to hold graphs."""

    found: Found
    walked: bool = False
    read_back: bool = False
    told: bool = False
    """``walked`` is in a row already."""


@dataclass(eq=False)
class _Born:
    """Left at the node behind a held tensor; lives as long as the node, and holds none itself."""

    step: int
    """Boundary at which it was first seen."""
    root: _Root
    nodes: int
    """Nodes behind it down to the next marked ones."""
    held_bytes: int
    """Saved tensors of these nodes; 0 once a backward has freed them."""
    below: tuple[_Born, ...]
    """The next marked ones: of the same boundary, or of the same variable."""
    oldest: int
    """Boundary at which the oldest graph of the variable was seen that this was made from."""


@dataclass
class _RootCount:
    """One root at one boundary."""

    marks: list[_Born] = field(default_factory=list)
    ages: list[int] = field(default_factory=list)
    visited: set[Node] = field(default_factory=set)


class RetainedGraphsProbe(Probe):
    """Writes ``graphs``.

    At each boundary every tensor with a graph that the user's variables reach is found and its node
    marked. A node that is marked already tells the age of what it belongs to and how much lies
    behind it, so each node is counted and weighed once in its life, however long the history grows.
    A variable is blamed for what a graph was made from only where that variable held it itself: the
    loss of a recurrent step is not what carries the hidden state.
    """

    name = "holders"
    parts = ("graphs",)
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reach = ObjectSearch(context.frames)
        self._sources = Sources()
        self._roots: dict[str, _Root] = {}
        self._by_place: dict[TensorPath, str] = {}
        self._looks = 0
        self._live: weakref.WeakSet[_Born] = weakref.WeakSet()

    def start(self) -> None:
        super().start()
        self._reach.adopt()

    def backward_begins(self, call: Backward) -> None:
        """A graph that was held across a boundary and is walked now was held for a purpose."""
        if not self._live:
            return
        if call.walked.capped:  # unknown: what might have been walked counts as walked
            for born in list(self._live):
                born.root.walked = True
        for node in call.walked.nodes:
            born = node.metadata.get(_MARK)
            if born is not None:
                born.root.walked = True
                if not call.keep_graph:
                    born.held_bytes = 0
        self._note_walked(set(call.walked.nodes))

    def _note_walked(self, nodes: set[Node]) -> None:
        """What is stored before the backward that walks it may be what that begins at."""
        stored, self._looks = nodes, self._looks + 1
        if self._looks <= LOOKS:
            stored = self._reach.stored(nodes, self.context.target, sys._getframe(2))
        for node in nodes:
            node.metadata[_WALKED] = node in stored or node.metadata.get(_WALKED, False)

    def step_end(self) -> None:
        with uncollected():
            self._look()

    def _look(self) -> None:
        try:
            held = self._reach.tensors(self.context.target, sys._getframe(2))
        except RuntimeError:  # another thread changed a container meanwhile
            return
        tallies: dict[str, _RootCount] = {}
        for place, tensors in held.items():
            key = self._root_of(place)
            self._count(self._roots[key], tensors, tallies.setdefault(key, _RootCount()))
        for key, tally in list(tallies.items())[:ROOTS]:
            self._write(key, tally)
        for key, root in self._roots.items():  # let go after it was walked: the last word about it
            if root.walked and not root.told and key not in tallies:
                self._write(key, _RootCount())

    def _root_of(self, place: TensorPath) -> str:
        key = self._by_place.get(place)
        if key is None:
            found = self._sources.find(place)
            key = found.root
            self._by_place[place] = key
            self._roots.setdefault(key, _Root(found))
        return key

    def _count(self, root: _Root, tensors: list[torch.Tensor], tally: _RootCount) -> None:
        for node in (node_of(tensor) for tensor in tensors):
            if node is None:
                continue
            mark, stored = node.metadata.get(_MARK), node.metadata.get(_WALKED)
            if stored or (stored is not None and not root.found.path):
                root.read_back = True
            if mark is None:
                mark = node.metadata[_MARK] = self._first_sight(node, root, tally.visited)
                self._live.add(mark)
            tally.marks.append(mark)
            tally.ages.append(self.context.step - (mark.oldest if mark.root is root else mark.step))

    def _first_sight(self, node: Node, root: _Root, visited: set[Node]) -> _Born:
        """Count and weigh what is new behind a node, down to nodes that are marked already."""
        now = self.context.step
        front, below = _front(node, visited)
        own = tuple(mark for mark in below if mark.step == now or mark.root is root)
        oldest = min((mark.oldest for mark in own if mark.root is root), default=now)
        return _Born(now, root, len(front.nodes), saved_bytes(front) or 0, own, oldest)

    def _write(self, key: str, tally: _RootCount) -> None:
        root = self._roots[key]
        root.told = root.told or root.walked
        carried = [mark for mark, age in zip(tally.marks, tally.ages, strict=True) if age > 0]
        row = GraphRow(
            **root.found.fields,
            tensors=len(tally.marks),
            carried=len(carried),
            oldest=max(tally.ages, default=0),
            nodes=min(sum(mark.nodes for mark in _closure(tally.marks, root)), NODE_CAP),
            held_bytes=sum(mark.held_bytes for mark in _closure(carried, root))
            if CAN_WEIGH
            else None,
            walked=root.walked,
            read_back=root.read_back,
        )
        self.context.add(row)


def _closure(marks: list[_Born], root: _Root) -> set[_Born]:
    """These marks and those below that ``root`` is to blame for: of its step, or held before it."""
    found: set[_Born] = set()
    waiting = list(marks)
    while waiting:
        mark = waiting.pop()
        if mark not in found:
            found.add(mark)
            waiting.extend(
                [under for under in mark.below if under.root is root or under.step == mark.step]
            )
    return found


def _front(start: Node, visited: set[Node]) -> tuple[Walk, set[_Born]]:
    """Nodes behind ``start``, neither ``visited`` nor behind a marked one; and those marks."""
    nodes: list[Node] = []
    leaves: list[Node] = []
    below: set[_Born] = set()
    waiting = [start]
    while waiting and len(nodes) < NODE_CAP:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        following = node.next_functions
        mark = node.metadata.get(_MARK) if following and node is not start else None
        if mark is not None:
            below.add(mark)
        elif following:
            nodes.append(node)
            waiting.extend([after for after, _ in following if after is not None])
        else:
            leaves.append(node)
    return Walk(nodes, leaves, capped=bool(waiting)), below
