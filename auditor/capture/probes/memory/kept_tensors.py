"""Variables of the user's that hold more after each step, or larger tensors: histories, caches, lists
of outputs, banks; tensors, arrays, numbers and strings. Tensors with a graph are another probe's.
"""

import sys
from collections.abc import Sequence
from typing import Any

import torch

from auditor.capture.instruments.assignment_sites import Sources, TensorPath
from auditor.capture.instruments.autograd_graph import node_of
from auditor.capture.instruments.object_search import ObjectSearch
from auditor.capture.instruments.plain_tensor import bytes_kept
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.sync import KeptRow

ROOTS = 64
"""Rows written at most."""

POINTER = 8
"""Bytes of a place in a list; a list grows in jumps, of which a trend knows nothing."""


def _kind(kept: Any) -> str:
    if isinstance(kept, torch.Tensor):
        return "tensors"
    return "arrays" if hasattr(kept, "nbytes") else "values"


def _device(kept: Any) -> str:
    return kept.device.type if isinstance(kept, torch.Tensor) else "cpu"


def _weighed(kept: Sequence[Any]) -> tuple[int, int]:
    """How many tensors, arrays and values, and their bytes; of values each as large as the newest."""
    tensors = [each for each in kept if isinstance(each, torch.Tensor)]
    number, nbytes = len(tensors), bytes_kept(tensors)
    for each in kept:
        kind = _kind(each)
        if kind == "arrays":
            number, nbytes = number + 1, nbytes + int(each.nbytes)
        elif kind == "values":
            inside = each.values() if isinstance(each, dict) else each
            newest = next(iter(inside) if isinstance(each, set) else reversed(inside))
            number += len(each)
            nbytes += len(each) * (POINTER + sys.getsizeof(newest))
    return number, nbytes


class KeptTensorsProbe(Probe):
    """Writes ``kept`` when its pass is over: a row for each variable that held more at the end."""

    name = "kept"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._reach = ObjectSearch(
            context.frames,
            lambda tensor: not tensor.requires_grad and node_of(tensor) is None,
            values=True,
        )
        self._sources = Sources()
        self._seen: list[dict[TensorPath, tuple[int, int]]] = []
        self._devices: dict[TensorPath, list[str]] = {}
        self._kinds: dict[TensorPath, str] = {}

    def start(self) -> None:
        super().start()
        self._seen = []
        self._reach.adopt()

    def step_end(self) -> None:
        try:
            held = self._reach.tensors(self.context.target, sys._getframe(1))
        except RuntimeError:  # another thread changed a container meanwhile
            return
        self._seen.append({place: _weighed(kept) for place, kept in held.items()})
        first = self._seen[0]
        grown = [place for place, now in self._seen[-1].items() if now > first.get(place, (0, 0))]
        self._devices = {place: sorted(set(map(_device, held[place]))) for place in grown}
        self._kinds = {place: _kind(held[place][-1]) for place in grown}

    def stop(self) -> None:
        seen, self._seen = self._seen, []
        grown = list(self._devices)[:ROOTS] if len(seen) > 1 else []
        for place in grown:
            counts = [each.get(place, (0, 0)) for each in seen]
            found = self._sources.find(place)
            self.context.add(
                KeptRow(
                    **found.fields,
                    tensors=[number for number, _ in counts],
                    nbytes=[nbytes for _, nbytes in counts],
                    devices=self._devices[place],
                    kind=self._kinds[place],
                )
            )
        self._devices = {}
