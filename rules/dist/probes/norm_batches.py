"""How many samples the batch norms of a rank see, where a module is trained data parallel."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.data_parallel_modules import DataParallelModules
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.probes.base import Context, Probe

from ..rows import NormBatchRow


@dataclass
class _Ran:
    """One batch norm in training: where it ran last, and the most that it was given."""

    at: int | None
    samples: int = 0
    values: int = 0
    n: int = 0


class NormBatchesProbe(Probe):
    """Writes ``norm_batches``, at the end of a pass. ``SyncBatchNorm`` has a forward of its own and
    is not seen.
    """

    name = "norm_batches"
    parts = ("norm_batches",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._wrapped = DataParallelModules(context.frames, lambda _, at: at)
        self._ran: weakref.WeakKeyDictionary[torch.nn.Module, _Ran] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        """Remember where each module is wrapped."""
        self._wrapped.install(self._always)

    def start(self) -> None:
        """Look at what batch norms are given."""
        if BatchNorm is None:
            return  # the part stays missing: nobody takes it for clean
        super().start()
        self._ran.clear()
        self._patches.around(BatchNorm, "forward", before=self._runs)

    def stop(self) -> None:
        if not self._patches:
            return
        super().stop()
        for module, at in list(self._wrapped.each.items()):
            norms = [each for each in module.modules() if each in self._ran]
            if norms:
                self._tell(module, at, norms)
        self._ran.clear()

    def _runs(self, module: Any, given: Any, *_: Any, **__: Any) -> None:
        if not (module.training and self.context.in_step and torch.is_grad_enabled()):
            return
        one = self._ran.get(module)
        if one is None:
            one = self._ran[module] = _Ran(self.context.frames.here())
        one.n += 1
        one.samples = max(one.samples, given.shape[0])
        one.values = max(one.values, given.numel() // max(1, given.shape[1]))

    def _tell(self, module: Any, at: int | None, norms: list[torch.nn.Module]) -> None:
        ran = [self._ran[each] for each in norms]
        fewest = min(ran, key=lambda each: each.values)
        row = NormBatchRow(at=at, what=type(module.module).__name__, norm=type(norms[0]).__name__)
        row.ranks, row.norms, row.n = module.process_group.size(), len(norms), fewest.n
        row.samples = max(each.samples for each in ran)
        row.values, row.norm_at = fewest.values, fewest.at
        row.step = self.context.step
        self.context.add(row)
