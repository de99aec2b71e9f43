"""Deep copies of what is trained, and of data beside it that has not changed since the last one."""

import copy
import functools
import threading
import time
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from auditor.capture.instruments.storages import storage_bytes, storage_key
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.instruments.torch_private.training import own_buffers
from auditor.capture.probes.base import Context, Probe

from ..rows import DeepCopyRow

COPIES, LINES, OBJECTS = 8, 16, 200_000
"""Copies of a line that are looked at, lines, and objects in a copy."""


class DeepCopiesProbe(Probe):
    """Writes ``deep_copies``. A step copies a trainer seldom: each copy is looked at, of all steps."""

    name = "deep_copies"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = False
        self._seen: dict[int, tuple[DeepCopyRow, dict[int, tuple[Any, int]]]] = {}

    def install(self) -> None:
        original, copied = copy.deepcopy, self.guarded(self._copied)

        @functools.wraps(original)
        def deepcopy(x: Any, memo: Any = None, *rest: Any) -> Any:
            ours = self.context.in_step and threading.get_ident() == self._thread
            if memo is not None or self._inside or not ours:
                return original(x, memo, *rest)
            self._inside, memo, began = True, {}, time.perf_counter()
            try:
                result = original(x, memo, *rest)
            finally:
                self._inside = False
            copied(x, memo.get(id(memo), ()), (time.perf_counter() - began) * 1e6)
            return result

        self._always.attribute(copy, "deepcopy", deepcopy)

    def _copied(self, x: Any, held: Iterable[Any], us: float) -> None:
        """``held``: the objects that were copied."""
        objects = tuple(held)
        tensors = [each for each in objects if isinstance(each, torch.Tensor)]
        trained = any(isinstance(each, nn.Parameter) and each.requires_grad for each in tensors)
        at = self.context.frames.here() if trained and len(objects) < OBJECTS else None
        if at is None or (at not in self._seen and len(self._seen) >= LINES):
            return
        row, before = self._seen.setdefault(at, (DeepCopyRow(at=at), {}))
        if row.n >= COPIES:
            return
        buffers = {
            id(buffer)
            for each in objects
            if isinstance(each, nn.Module)
            for buffer in own_buffers(each).values()
        }
        data = [
            each
            for each in tensors
            if not isinstance(each, nn.Parameter)
            and id(each) not in buffers
            and not each.is_inference()
        ]
        same = [each for each in data if _is_same(each, before.get(id(each)))]
        row.n, row.us = row.n + 1, row.us + us
        if before:
            row.again += 1
            row.nbytes += _bytes(tensors)
            row.unchanged += _bytes(same)
            row.name = _name_of(x, same) or row.name
        now = {id(each): (weakref.ref(each), version_of(each)) for each in data}
        self._seen[at] = row, now

    def stop(self) -> None:
        super().stop()
        for row, _ in self._seen.values():
            if row.unchanged:
                row.all = self.context.global_step + 1
                self.context.add(row)
        self._seen.clear()


def _is_same(tensor: torch.Tensor, before: tuple[Any, int] | None) -> bool:
    """It is the tensor of the copy before, and nothing wrote into it since."""
    return before is not None and before[0]() is tensor and before[1] == version_of(tensor)


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Of their storages, which are copied whole."""
    return sum({storage_key(each): storage_bytes(each) or 0 for each in tensors}.values())


def _name_of(x: Any, tensors: list[torch.Tensor]) -> str:
    """The attribute that is the largest of them."""
    largest = max(tensors, key=lambda each: each.nbytes, default=None)
    held = getattr(x, "__dict__", None) or {}
    return next((name for name, each in held.items() if each is largest), "")
