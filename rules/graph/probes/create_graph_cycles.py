"""Gradients that carry a graph of their own (``backward(create_graph=True)``) from step to step: a
cycle that nothing frees.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch

from auditor.capture.instruments.autograd_graph import Backward, Node, node_of, saved_bytes, walk
from auditor.capture.instruments.live_objects import alive
from auditor.capture.probes.base import Context, Probe

from ..rows import CycleRow


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
    parts = ("cycles",)
    passes = frozenset({"loud"})

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
        """Write what has been there since an earlier step."""
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
