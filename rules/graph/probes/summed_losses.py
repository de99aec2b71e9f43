"""Backwards over sums of losses that share only parameters, and gradients that keep a graph."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import (
    Backward,
    Node,
    Walk,
    node_of,
    saved_bytes,
    walk,
)
from auditor.capture.instruments.live_objects import alive
from auditor.capture.probes.base import Context, Probe

from ..rows import CycleRow, SummedRow


@dataclass
class _Fed:
    """A leaf whose gradient has a graph. The cycle keeps it alive: the weak reference tells."""

    leaf: weakref.ref[torch.Tensor]
    at: int
    step: int
    """Step since which its gradient has had a graph at every look."""


class CreateGraphCyclesProbe(Probe):
    """Writes ``cycles``: per step and line, leaves whose gradient has an earlier step's graph."""

    name = "cycles"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._fed: dict[int, _Fed] = {}
        self._of_call: list[torch.Tensor] = []

    def start(self) -> None:
        self._fed.clear()
        super().start()

    def stop(self) -> None:
        super().stop()
        self._fed.clear()

    def backward_begins(self, call: Backward) -> None:
        """Forget leaves whose gradients were reset; note those that may get one with a graph."""
        self._forget_reset()
        if call.create_graph and not call.nested and self.context.in_step:
            self._of_call = [node.variable for node in call.walked.leaves]

    def backward_ends(self, call: Backward) -> None:
        """Which of them have one now? (``torch.autograd.grad`` gives none.)"""
        leaves, self._of_call = self._of_call, []
        at = self.context.frames.here() if leaves else None
        for leaf in leaves if at is not None else ():
            known = self._fed.get(id(leaf))
            if _graph_of(leaf) is not None and (known is None or alive(known.leaf) is not leaf):
                self._fed[id(leaf)] = _Fed(weakref.ref(leaf), at or 0, self.context.step)

    def step_end(self) -> None:
        self._forget_reset()
        carried: dict[int, list[Node]] = {}
        for fed in self._fed.values():
            leaf = alive(fed.leaf)
            if leaf is not None and fed.step < self.context.step:
                carried.setdefault(fed.at, []).append(_graph_of(leaf))
        for at, nodes in carried.items():
            self.context.add(
                CycleRow(at=at, leaves=len(nodes), held_bytes=saved_bytes(walk(nodes)))
            )

    def _forget_reset(self) -> None:
        self._fed = {
            number: fed
            for number, fed in self._fed.items()
            if (leaf := alive(fed.leaf)) is not None and _graph_of(leaf) is not None
        }


def _graph_of(leaf: torch.Tensor) -> Node | None:
    return None if leaf.grad is None else node_of(leaf.grad)


FEWEST = 3
"""Losses in a sum from which a row is written: two may be those of two players."""

MOST = 64
"""Losses of a sum that are looked at."""

STEPS = 3
"""Steps of the pass that are looked at."""

SCALED = frozenset(
    """
    DivBackward0 MulBackward0 NegBackward0 ToCopyBackward0 CloneBackward0 SqueezeBackward0
    ViewBackward0 ReshapeAliasBackward0 UnsqueezeBackward0
    """.split()
)
"""What a loss may go through on its way to the sum."""

TOGETHER = frozenset({"StackBackward0", "CatBackward0"})


class SummedLossesProbe(Probe):
    """Writes ``summed``: a row for each such backward."""

    name = "summed"
    in_rehearsals = True

    def backward_begins(self, call: Backward) -> None:
        """Look at the graph before the engine frees it."""
        if not self.context.in_step or self.context.step >= STEPS:
            return
        if call.nested or call.inputs or call.create_graph or len(call.tensors) != 1:
            return
        (loss,) = call.tensors
        root = node_of(loss)
        if root is None or loss.numel() != 1 or call.walked.capped:
            return
        graphs = [walk([term]) for term in terms_of(root)]
        if len(graphs) < FEWEST or not _are_apart(graphs):
            return
        weights = [saved_bytes(graph) for graph in graphs]
        at = self.context.frames.here()
        if at is not None and all(weights):
            known = [weight for weight in weights if weight is not None]
            together = saved_bytes(call.walked) or sum(known)
            trained = sum(leaf.variable.nbytes for leaf in graphs[0].leaves)
            self.context.add(
                SummedRow(
                    at=at,
                    n=len(graphs),
                    saved_bytes=together,
                    each_bytes=max(known),
                    leaf_bytes=trained,
                )
            )

    def backward_ends(self, call: Backward) -> None:
        """Nothing is to do then."""


def terms_of(root: Any) -> list[Any]:
    """What is summed up there one after the other, or stacked and reduced; the last one first."""
    node = _plain(root)
    if type(node).__name__ in {"SumBackward0", "MeanBackward0", "SumBackward1", "MeanBackward1"}:
        inner = _plain(next(_following(node), None))
        if type(inner).__name__ in TOGETHER:
            return [_plain(each) for each in _following(inner)][:MOST]
    terms: list[Any] = []
    while len(terms) < MOST:
        if terms and _kinds(node) == _kinds(terms[0]):
            return [*terms, node]
        if type(node).__name__ != "AddBackward0":
            break
        *before, last = _following(node)
        if before:
            terms.append(_plain(last))
        node = _plain(before[0] if before else last)
    return []


def _plain(node: Any) -> Any:
    """Behind factors and other forms of the same number."""
    while type(node).__name__ in SCALED:
        edges = list(_following(node))
        if len(edges) != 1:
            break
        (node,) = edges
    return node


def _following(node: Any) -> Iterator[Any]:
    return (each for each, _ in node.next_functions if each is not None)


def _kinds(node: Any, depth: int = 4) -> list[str]:
    """Of the node and those right behind it: enough to know a loss of the same form."""
    here, found = [node], []
    for _ in range(depth):
        found += [type(each).__name__ for each in here]
        here = [after for each in here for after in _following(each)][:MOST]
    return found


def _are_apart(graphs: list[Walk]) -> bool:
    """They are of one form, reach the same parameters, and share no other node."""
    forms = {tuple(type(node).__name__ for node in graph.nodes) for graph in graphs}
    leaves = {frozenset(map(id, graph.leaves)) for graph in graphs}
    nodes = [id(node) for graph in graphs for node in graph.nodes]
    alike = len(forms) == len(leaves) == 1 and all(graph.leaves for graph in graphs)
    return alike and len(nodes) == len(set(nodes))
