"""Running means and variances of batch norm that are not finite: a batch that a guard kept from the
weights has spoiled them all the same.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import NormBufferRow

BUFFERS = ("running_mean", "running_var")


class NormBuffersProbe(Probe):
    """Writes ``buffers``: one row, at the first step that ends with such a buffer."""

    name = "buffers"
    parts = ("buffers",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches(self.missed)
        self._ran: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._told = False

    def start(self) -> None:
        """Notice which of these modules run, and from where."""
        if BatchNorm is None:
            return  # the part stays missing: nobody takes it for clean
        self.context.writer.touch("buffers")
        self._patches.around(BatchNorm, "forward", before=self._runs)

    def stop(self) -> None:
        """Put the method back."""
        self._patches.undo()
        self._ran.clear()

    def _runs(self, module: Any, *_: Any, **__: Any) -> None:
        if self._told or not self.context.in_step or not module.training:
            return
        at = self.context.frames.here()
        if at is not None:
            self._ran[module] = at

    def step_end(self) -> None:
        """Look at the buffers of those that ran."""
        for module, at in list(self._ran.items()) if not self._told else ():
            for name in BUFFERS:
                buffer = getattr(module, name, None)
                buffer = plain(buffer) if isinstance(buffer, torch.Tensor) else None
                if type(buffer) is not torch.Tensor or buffer.is_meta:
                    continue
                if not bool(torch.isfinite(buffer).all()):
                    value = "nan" if bool(torch.isnan(buffer).any()) else "inf"
                    owner = type(module).__name__
                    self.context.add(NormBufferRow(at=at, owner=owner, buffer=name, value=value))
                    self._told = True
                    break
            if self._told:
                break
        self._ran.clear()
