"""Buffers that ``DistributedDataParallel`` sends from rank 0 before a forward, and whether they
change.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from auditor.capture.instruments.data_parallel_modules import DataParallelModules
from auditor.capture.instruments.plain_tensor import content
from auditor.capture.probes.base import Context, Probe

from ..rows import BufferBroadcastRow

READ = 1 << 28
"""Bytes of a module's buffers up to which they are read."""


KEYWORD = (
    "forward_sync_buffers"
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel.__init__).parameters
    else "broadcast_buffers"
)
"""What this torch calls the flag."""


@dataclass
class _Wrapped:
    """One module: where it was made, and what its buffers held when the pass began."""

    number: int
    at: int | None
    held: list[bytes] = field(default_factory=list)
    n: int = 0


class BufferBroadcastsProbe(Probe):
    """Writes ``buffer_broadcasts``, at the end of a pass. Buffers are read between steps, before
    the first and after the last one.
    """

    name = "buffer_broadcasts"
    parts = ("buffer_broadcasts",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._modules = DataParallelModules(context.frames, _Wrapped)
        self._on = False

    def install(self) -> None:
        """Remember where each module is wrapped."""
        self._modules.install(self._always)

    def start(self) -> None:
        """Read the buffers and count forwards."""
        super().start()
        self._on = not self.context.device.null  # there nothing is computed, so nothing changes
        if not self._on:
            return
        for module, one in self._modules.each.items():
            one.held, one.n = _held(module), 0
        self._patches.around(DistributedDataParallel, "forward", before=self._forward)

    def stop(self) -> None:
        """Read them again and write what was seen."""
        super().stop()
        if not self._on:
            return
        self._on = False
        for module, one in list(self._modules.each.items()):
            if one.n and one.held:
                self._tell(module, one)

    def _forward(self, module: Any, *args: Any, **kwargs: Any) -> None:
        one = self._modules.each.get(module)
        sends = module.broadcast_buffers and module.require_forward_param_sync
        if one is not None and sends and self.context.in_step:
            one.n += 1

    def _tell(self, module: Any, one: _Wrapped) -> None:
        now, sent = _held(module), _sent(module)
        row = BufferBroadcastRow(number=one.number, at=one.at, what=type(module.module).__name__)
        row.ranks = module.process_group.size()
        row.n, row.bytes = one.n, sum(each.nbytes for each in sent)
        row.buffers, row.changed = (
            len(sent),
            sum(a != b for a, b in zip(one.held, now, strict=False)),
        )
        row.changed += abs(len(now) - len(one.held))
        row.keyword = KEYWORD
        row.step = self.context.step
        self.context.add(row)


def _sent(module: Any) -> list[torch.Tensor]:
    """The buffers that it sends, none of those that it was told to ignore."""
    if not module.broadcast_buffers:
        return []
    return [
        each
        for name, each in module.module.named_buffers()
        if name not in module.parameters_to_ignore
    ]


def _held(module: Any) -> list[bytes]:
    """A digest of each; empty where there are none or they are too large to be read."""
    sent = _sent(module)
    if sum(each.nbytes for each in sent) > READ:
        return []
    return [_digest(each) for each in sent]


def _digest(tensor: torch.Tensor) -> bytes:
    with torch.no_grad():
        plain = tensor.detach().cpu().contiguous()
    return hashlib.blake2b(content(plain), digest_size=16).digest()
