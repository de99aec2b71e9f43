"""Which epochs loaders begin whose ``DistributedSampler`` shuffles."""

from __future__ import annotations

import weakref
from typing import Any

from torch.utils.data import DataLoader, DistributedSampler

from auditor.capture.instruments.loader_origins import LoaderOrigins
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.graph.call_paths import path_of
from auditor.recordings.schema.dist import SamplerEpochRow


class SamplerEpochsProbe(Probe):
    """Writes ``sampler_epochs``."""

    name = "sampler_epochs"
    parts = ("sampler_epochs",)
    passes = frozenset({"quiet", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._known: weakref.WeakKeyDictionary[Any, tuple[int, int | None]] = (
            weakref.WeakKeyDictionary()
        )

    def install(self) -> None:
        self._always.around(DistributedSampler, "__init__", after=self._made)
        self._origins.install(self._always)

    def start(self) -> None:
        super().start()
        self._patches.around(DataLoader, "__iter__", before=self._begins)

    def _made(self, _: None, sampler: Any, *args: Any, **kwargs: Any) -> None:
        self._known[sampler] = len(self._known), self.context.frames.here()

    def _begins(self, loader: Any) -> None:
        sampler = loader.sampler
        if not isinstance(sampler, DistributedSampler):
            sampler = getattr(loader.batch_sampler, "sampler", None)
        if not isinstance(sampler, DistributedSampler) or not sampler.shuffle:
            return
        if not self.context.in_step:
            return
        number, made_at = self._known.setdefault(sampler, (len(self._known), None))
        self.context.add(
            SamplerEpochRow(
                number=number,
                at=self.context.frames.here(),
                made_at=made_at,
                loader_at=self._origins.of(loader),
                replicas=sampler.num_replicas,
                epoch=sampler.epoch,
                stack=list(path_of(self.context.frames)),
            )
        )
