"""What a rank saves, in all passes, for a comparison with the other ranks."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, cast

import torch
import torch.distributed as dist

from auditor.capture.instruments.plain_tensor import content
from auditor.capture.probes.base import Context, Probe

from ..rows import RankSaveRow

MOST = 64
"""Saves of a run that are looked at."""


class RankSavesProbe(Probe):
    """Writes ``rank_saves``. The function's code is swapped from the start: a save is rare, and may
    fall into any pass.
    """

    name = "rank_saves"
    parts = ("rank_saves",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._looked = 0
        self._note = self.guarded(self._look)

    def install(self) -> None:
        self.context.writer.touch("rank_saves")
        self._always.code(cast("FunctionType", torch.save), self._save)

    def _save(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = original(*args, **kwargs)
        self._note((time.perf_counter() - begin) * 1e6, args, kwargs)
        return result

    def _look(self, us: float, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._looked >= MOST or threading.current_thread() is not threading.main_thread():
            return
        if not several_here() or self.context.device.null or self.context.writer.forked:
            return
        at = self.context.frames.here()
        if at is None:
            return
        self._looked += 1
        file = args[1] if len(args) > 1 else kwargs.get("f")
        row = RankSaveRow(at=at, us=us, digest=digest_of(args[0] if args else kwargs.get("obj")))
        if isinstance(file, (str, bytes, os.PathLike)):
            row.path = os.path.abspath(os.fsdecode(file))
            row.bytes = os.path.getsize(row.path)
        self.context.add(row)


# -- digest ----------------------------------------------------------------------------------------
# A short digest of what a rank saves, which can be compared with another rank's.

DEEP = 6
"""Dictionaries and lists in one another that are looked into."""

TENSORS = 4096
"""Tensors of which name, shape and dtype are read."""

READ = 64
"""Of these, tensors whose first numbers are read."""

NUMBERS = 1024

PLAIN = (torch.Tensor, torch.nn.Parameter)


def several_here() -> bool:
    """Whether the process is one of several ranks, more than one of them on this machine."""
    together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return together and os.environ.get("LOCAL_WORLD_SIZE") != "1"


def digest_of(saved: Any) -> str:
    """Of names, shapes and first numbers of the tensors in it; empty where there are none, too
    many, or one is a rank's part of a larger one.
    """
    whole = hashlib.blake2b(digest_size=8)
    number = -1
    for number, (name, tensor) in enumerate(_tensors("", saved, DEEP)):
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided or number >= TENSORS:
            return ""
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if number < READ and tensor.numel() and tensor.device.type != "meta":
            whole.update(_first(tensor))
    return whole.hexdigest() if number >= 0 else ""


def _tensors(name: str, saved: Any, deep: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(saved, torch.Tensor):
        yield name, saved
    elif deep and isinstance(saved, Mapping):
        for key, value in saved.items():
            yield from _tensors(f"{name}.{key}", value, deep - 1)
    elif deep and isinstance(saved, (list, tuple)):
        for value in saved:
            yield from _tensors(f"{name}.", value, deep - 1)


def _first(tensor: torch.Tensor) -> bytes:
    with torch.no_grad():
        some = tensor.detach().reshape(-1)[:NUMBERS].cpu().contiguous()
    return content(some)
