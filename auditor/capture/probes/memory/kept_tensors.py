"""Variables of the user's that hold more tensors after each step: histories, caches, lists of
outputs. Those with a graph are another probe's.
"""

from __future__ import annotations

import os
import sys

import torch

from auditor.capture.instruments.assignment_sites import Sources
from auditor.capture.instruments.autograd_graph import node_of
from auditor.capture.instruments.object_search import ObjectSearch
from auditor.capture.instruments.plain_tensor import bytes_of
from auditor.capture.instruments.variable_paths import Place
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import KeptRow

ROOTS = 64
"""Rows written at most."""


def _without_graph(tensor: torch.Tensor) -> bool:
    return not tensor.requires_grad and node_of(tensor) is None


class KeptTensorsProbe(Probe):
    """Writes ``kept`` when its pass is over: a row for each variable that held more at the end."""

    name = "kept"
    parts = ("kept",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reach = ObjectSearch(context.frames, _without_graph)
        self._sources = Sources(fresh=True)
        self._seen: list[dict[Place, tuple[int, int]]] = []
        self._devices: dict[Place, list[str]] = {}

    def start(self) -> None:
        """Look into the objects that are there."""
        self.context.writer.touch("kept")
        self._seen = []
        self._reach.adopt()

    def step_end(self) -> None:
        """Count what each variable holds."""
        try:
            held = self._reach.tensors(self.context.target, sys._getframe(1))
        except RuntimeError:  # another thread changed a container meanwhile
            return
        self._seen.append(
            {
                place: (len(tensors), sum(bytes_of(tensor) for tensor in tensors))
                for place, tensors in held.items()
            }
        )
        first = self._seen[0]
        self._devices = {
            place: sorted({tensor.device.type for tensor in tensors})
            for place, tensors in held.items()
            if len(tensors) > first.get(place, (0, 0))[0]
        }

    def stop(self) -> None:
        """Write what has grown."""
        seen, self._seen = self._seen, []
        grown = list(self._devices) if len(seen) > 1 else []
        for place in grown[:ROOTS]:
            counts = [each.get(place, (0, 0)) for each in seen]
            found = self._sources.find(place)
            self.context.add(
                KeptRow(
                    root=found.root,
                    file=os.path.abspath(found.file),
                    function=found.function,
                    name=found.name,
                    path=found.path,
                    line=found.line,
                    tensors=[number for number, _ in counts],
                    nbytes=[nbytes for _, nbytes in counts],
                    devices=self._devices[place],
                )
            )
        self._devices = {}
