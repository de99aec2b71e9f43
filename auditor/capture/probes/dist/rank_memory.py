"""What of a rank's device memory is for what: parameters, gradients, states of optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.plain_tensor import bytes_of
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of
from auditor.recordings.schema.dist import RankMemoryRow

MOST = 64
"""Optimizers whose states are counted."""


class RankMemoryProbe(OptimizerProbe):
    """Writes ``rank_memory``, at the end of a pass."""

    name = "rank_memory"
    parts = ("rank_memory",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._states: PerOptimizer[list[int]] = PerOptimizer(MOST)
        self._gradients: PerOptimizer[list[int]] = PerOptimizer(MOST)
        self._on = False

    def start(self) -> None:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._on = several and self.context.device.native
        self._states.clear()
        self._gradients.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Its gradients are there, and its states since its first step."""
        if not self._on:
            return
        parameters = list(tensors_of(optimizer))
        gradients = [each.grad for each in parameters if each.grad is not None]
        _keep(self._gradients, optimizer, on_device(gradients))
        states = [each for each in optimizer.state.values() if isinstance(each, dict)]
        held = [each for state in states for each in state.values()]
        tensors = [each for each in held if isinstance(each, torch.Tensor)]
        _keep(self._states, optimizer, on_device(tensors))

    def stop(self) -> None:
        if not self._on:
            return
        self._on = False
        held = [
            each
            for module in live_instances(torch.nn.Module)
            for each in (*module.parameters(recurse=False), *module.buffers(recurse=False))
        ]
        row = RankMemoryRow(parameters=on_device(held))
        row.gradients = sum(each[0] for each in self._gradients)
        row.optimizer = sum(each[0] for each in self._states)
        row.step = self.context.step
        self.context.add(row)


def _keep(found: PerOptimizer[list[int]], optimizer: Optimizer, nbytes: int) -> None:
    kept = found.of(optimizer, lambda: [0])
    if kept is not None:
        kept[0] = nbytes


def on_device(given: Iterable[Any]) -> int:
    """Bytes of these tensors on a device, of shards this rank's own. Views that begin at one place
    of a storage count once.
    """
    found: dict[int, dict[int, int]] = {}
    most: dict[int, int] = {}
    for each in given:
        own = each.to_local() if hasattr(each, "to_local") else each
        if own.device.type in ("cpu", "meta"):
            continue
        storage = own.untyped_storage()
        views = found.setdefault(key_of(storage), {})
        views[own.storage_offset()] = max(views.get(own.storage_offset(), 0), bytes_of(own))
        most[key_of(storage)] = storage.nbytes()
    return sum(min(most[key], sum(views.values())) for key, views in found.items())
