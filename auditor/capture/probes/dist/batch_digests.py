"""What the loaders of a rank give, as short digests that can be compared between ranks."""

from __future__ import annotations

import contextlib
import hashlib
import weakref
from typing import Any

import torch
import torch.distributed as dist

from auditor.capture.instruments.loader_origins import LoaderOrigins
from auditor.capture.instruments.plain_tensor import content
from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.instruments.torch_private.look_up import Missing
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.recordings.schema.dist import BatchDigestRow

BYTES = 1 << 16
"""Of a batch's first tensor that are digested."""


class BatchDigestsProbe(Probe):
    """Writes ``batch_digests``. Reads the memory of batches on the host, and runs no operator."""

    name = "batch_digests"
    parts = ("batch_digests",)
    passes = frozenset({"loud"})

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
            self.context.add(
                BatchDigestRow(
                    at=at,
                    loader_at=loader_at,
                    rank=dist.get_rank(),
                    ranks=dist.get_world_size(),
                    digest=""
                    if b"" in digests
                    else hashlib.blake2b(b"".join(digests), digest_size=8).hexdigest(),
                )
            )
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
