"""Running means and variances of batch norm that are not finite: a batch that a guard kept from the
weights has spoiled them all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.numerics import NormBufferRow


def statistics_of(modules: Iterable[torch.nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Running means and variances of these batch norms, by name, with values that can be read."""
    for module in modules:
        for name in ("running_mean", "running_var"):
            buffer = getattr(module, name, None)
            if not isinstance(buffer, torch.Tensor) or type(plain(buffer)) is not torch.Tensor:
                continue
            if not plain(buffer).is_meta:
                yield name, buffer


def finite(buffer: torch.Tensor) -> bool:
    """Whether all of its values are."""
    return bool(torch.isfinite(plain(buffer)).all())


class NormBuffersProbe(Probe):
    """Writes ``buffers``: one row, at the first step that ends with such a buffer."""

    name = "buffers"
    parts = ("buffers",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ran: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._told = False

    def start(self) -> None:
        if BatchNorm is None:
            return  # the part stays missing: nobody takes it for clean
        super().start()
        self._patches.around(BatchNorm, "forward", before=self._runs)

    def stop(self) -> None:
        super().stop()
        self._ran.clear()

    def _runs(self, module: Any, *_: Any, **__: Any) -> None:
        if self._told or not self.context.in_step or not module.training:
            return
        at = self.context.frames.here()
        if at is not None:
            self._ran[module] = at

    def step_end(self) -> None:
        for module, at in list(self._ran.items()) if not self._told else ():
            bad = [each for each in statistics_of([module]) if not finite(each[1])]
            if bad:
                name, buffer = bad[0]
                value = "nan" if bool(torch.isnan(plain(buffer)).any()) else "inf"
                owner = type(module).__name__
                self.context.add(NormBufferRow(at=at, owner=owner, buffer=name, value=value))
                self._told = True
                break
        self._ran.clear()
