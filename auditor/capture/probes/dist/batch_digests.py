"""What the loaders of a rank give, as short digests that can be compared between ranks."""

import contextlib
import hashlib
import weakref
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, DistributedSampler

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.plain_tensor import bytes_of, content
from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.instruments.torch_private.look_up import Missing
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.instruments.user_frames import path_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import LoaderOrigins, tensors_in
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of
from auditor.recordings.schema.dist import BatchDigestRow, RankMemoryRow, SamplerEpochRow

MOST = 64
"""Optimizers whose states are counted."""


class RankMemoryProbe(OptimizerProbe):
    """Writes ``rank_memory``, at the end of a pass."""

    name = "rank_memory"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._states: PerOptimizer[list[int]] = PerOptimizer(MOST)
        self._gradients: PerOptimizer[list[int]] = PerOptimizer(MOST)

    def start(self) -> None:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.watching = several and self.context.device.native
        self._states.clear()
        self._gradients.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Its gradients are there, and its states since its first step."""
        if not self.watching:
            return
        parameters = list(tensors_of(optimizer))
        gradients = [each.grad for each in parameters if each.grad is not None]
        _keep(self._gradients, optimizer, on_device(gradients))
        states = [each for each in optimizer.state.values() if isinstance(each, dict)]
        held = [each for state in states for each in state.values()]
        tensors = [each for each in held if isinstance(each, torch.Tensor)]
        _keep(self._states, optimizer, on_device(tensors))

    def stop(self) -> None:
        if not self.watching:
            return
        super().stop()
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
    """Bytes of these tensors on a device, of shards this rank's. Views of one place count once."""
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


class SamplerEpochsProbe(Probe):
    """Writes ``sampler_epochs``."""

    name = "sampler_epochs"
    passes = frozenset({"quiet", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def install(self) -> None:
        self._origins.install(self._always)

    def start(self) -> None:
        super().start()
        self._patches.around(DataLoader, "__iter__", before=self._begins)

    def _begins(self, loader: Any) -> None:
        sampler = loader.sampler
        if not isinstance(sampler, DistributedSampler):
            sampler = getattr(loader.batch_sampler, "sampler", None)
        if not isinstance(sampler, DistributedSampler) or not sampler.shuffle:
            return
        if not self.context.in_step:
            return
        self.context.add(
            SamplerEpochRow(
                number=self._known.setdefault(sampler, len(self._known)),
                at=self.context.frames.here(),
                loader_at=self._origins.of(loader),
                replicas=sampler.num_replicas,
                epoch=sampler.epoch,
                stack=list(path_of(self.context.frames)),
            )
        )


BYTES = 1 << 16
"""Of a batch's first tensor that are digested."""


class BatchDigestsProbe(Probe):
    """Writes ``batch_digests``. Reads the memory of batches on the host, and runs no operator."""

    name = "batch_digests"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._loader_at: weakref.WeakKeyDictionary[Any, int | None] = weakref.WeakKeyDictionary()
        self._step: dict[int | None, tuple[int | None, list[bytes]]] = {}

    def install(self) -> None:
        if LoaderIterator is None:
            raise Missing("torch.utils.data.dataloader._BaseDataLoaderIter")
        self._origins.install(self._always)
        self._always.around(LoaderIterator, "__init__", before=self._iterated)

    def start(self) -> None:
        super().start()
        self._step.clear()
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            self._patches.around(LoaderIterator, "__next__", after=self._gave)

    def step_end(self) -> None:
        for loader_at, (at, digests) in self._step.items():
            whole = hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest()
            row = BatchDigestRow(at=at, loader_at=loader_at, digest="" if b"" in digests else whole)
            row.rank, row.ranks = dist.get_rank(), dist.get_world_size()
            self.context.add(row)
        self._step.clear()

    def _iterated(self, iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        self._loader_at[iterator] = self._origins.of(loader)

    def _gave(self, batch: Any, iterator: Any) -> None:
        if not self.in_step:
            return
        if not torch.is_grad_enabled():
            return  # for a validation, which all ranks may do alike
        at = self.context.frames.here()
        _, digests = self._step.setdefault(self._loader_at.get(iterator), (at, []))
        digests.append(_digest(batch))


def _digest(batch: Any) -> bytes:
    """Of its first tensor's first bytes and shape; empty if that is not plain host memory."""
    with contextlib.suppress(Exception):  # a batch can be any object of the user's
        tensor = next(tensors_in(batch, 1), None)
        if tensor is None or type(tensor) is not torch.Tensor or tensor.device.type != "cpu":
            return b""
        if tensor.layout is torch.strided and tensor.is_contiguous() and tensor.nbytes:
            facts = f"{tuple(tensor.shape)} {tensor.dtype}".encode()
            return hashlib.blake2b(facts + content(tensor, BYTES), digest_size=16).digest()
    return b""
