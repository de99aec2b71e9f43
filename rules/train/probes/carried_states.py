"""States of recurrent layers that are carried from batch to batch of a loader that shuffles."""

import sys
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.data import LoaderIterator, index_sampler
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.graph import CensusRow

RANDOM = frozenset({RandomSampler, SubsetRandomSampler, WeightedRandomSampler})
"""A sampler of the program's own may keep neighbors together."""

MOST = 4 << 20
"""Numbers of a state that are kept."""


@dataclass
class _Layer:
    """A recurrent layer: what it gave last, after how many batches, and what it was given then."""

    state: torch.Tensor | None = None
    shuffled: int = 0
    others: int = 0
    begun: int = 0
    carried: int = 0
    lines: tuple[int, ...] = ()


class CarriedStatesProbe(Probe):
    """Writes ``census``: a row for each recurrent layer whose first call after a batch was given the
    state that its last call before gave. Batches of a loader that does not shuffle make it unknown
    which of them the layer is given.
    """

    name = "carried_states"
    parts = ("census",)
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._shuffled = self._others = 0
        self._layers: weakref.WeakKeyDictionary[nn.Module, _Layer] = weakref.WeakKeyDictionary()

    def start(self) -> None:
        super().start()
        if LoaderIterator is not None:
            self._patches.around(LoaderIterator, "__next__", after=self._drawn)
            for kind in (nn.LSTM, nn.GRU, nn.RNN):
                self._patches.around(kind, "forward", after=self._ran)

    def stop(self) -> None:
        super().stop()
        layers, self._layers = [*self._layers.items()], weakref.WeakKeyDictionary()
        told = set[int]()
        for module, layer in layers:
            if layer.carried and layer.lines[0] not in told:
                told.add(layer.lines[0])
                row = CensusRow(kind="state", at=layer.lines[0], name=type(module).__name__)
                row.n, row.steps = layer.carried, layer.begun
                row.other_at = layer.lines[-1]
                self.context.add(row)

    def _drawn(self, _: Any, iterator: Any) -> None:
        sampler = index_sampler(iterator)
        sampler = getattr(sampler, "sampler", sampler)
        shuffles = type(sampler) in RANDOM or (
            type(sampler) is DistributedSampler and sampler.shuffle
        )
        if shuffles and len(sampler) > 1:
            self._shuffled += 1
        else:
            self._others += 1

    def _ran(self, result: Any, module: nn.Module, _: Any, hx: Any = None) -> None:
        if not (module.training and torch.is_grad_enabled() and self.in_step):
            return
        layer = self._layers.setdefault(module, _Layer())
        drawn = self._shuffled > layer.shuffled and self._others == layer.others
        if drawn and layer.state is not None:
            frames = self.context.frames
            lines = tuple(map(frames.number, frames.user_frames(sys._getframe(1), 2)))
            given = _first(hx)
            layer.begun += 1
            if given is not None and lines and _same(given, layer.state):
                layer.carried, layer.lines = layer.carried + 1, lines
        layer.shuffled, layer.others = self._shuffled, self._others
        last = _first(result[1])
        small = last is not None and last.numel() <= MOST
        layer.state = last.clone() if small and last is not None else None


def _first(state: Any) -> torch.Tensor | None:
    """The hidden state; of an LSTM the first of two."""
    first = state[0] if isinstance(state, tuple) else state
    return plain(first.detach()) if isinstance(first, torch.Tensor) else None


def _same(given: torch.Tensor, state: torch.Tensor) -> bool:
    return given.shape == state.shape and bool(given.any()) and torch.equal(given, state)
