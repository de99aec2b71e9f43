"""Deep copies of objects that hold parameters, and data beside them."""

import copy
import functools
import weakref
from typing import Any

import torch
from torch import nn

from auditor.capture.instruments.storages import storage_bytes, storage_key
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.step.clock import RunQueue

from ..rows import DeepCopyRow


class DeepCopiesProbe(Probe):
    """Writes ``deep_copies`` at the pass's end, of all steps until then."""

    name = "deep_copies"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._rows: dict[int, DeepCopyRow] = {}
        self._largest: dict[int, tuple[weakref.ref[Any], int]] = {}
        """Of each line what it copied last, and torch's count of its changes (-1: not counted)."""
        self._copies: list[weakref.ref[Any]] = []

    def install(self) -> None:
        original, looked, queue = copy.deepcopy, self.guarded(self._looked), RunQueue()
        self._always.on_undo(queue.close)

        @functools.wraps(original)
        def deepcopy(x: Any, memo: Any = None, *more: Any) -> Any:
            if memo is not None or isinstance(x, nn.Module) or not self.in_step:
                return original(x, memo, *more)
            memo, start = {}, queue.mark()  # gets each copy by the number of what was copied
            result = original(x, memo)
            looked(type(x).__name__, memo, queue.own_us(start))
            return result

        self._always.attribute(copy, "deepcopy", deepcopy)

    def _looked(self, name: str, memo: dict[int, Any], us: float) -> None:
        at, originals = self.context.frames.here(), memo.pop(id(memo), ())
        modules = (each for each in originals if isinstance(each, nn.Module))
        held = [each for module in modules for each in (*module.parameters(), *module.buffers())]
        shapes = {each.shape for each in held}  # also of gradients, moments and averages
        sized = (each for each in originals if isinstance(getattr(each, "nbytes", None), int))
        data = [each for each in sized if each.shape not in shapes]
        if at is None or not held or not data:
            return
        new = DeepCopyRow(at=at, name=name, bytes=_bytes(data), state=_bytes(held))
        row = self._rows.setdefault(at, new)
        row.n += 1
        row.us += us
        largest = max(data, key=lambda each: each.nbytes)
        counted = isinstance(largest, torch.Tensor) and not largest.is_inference()
        now = version_of(largest) if counted else -1
        reference, before = self._largest.get(at, (lambda: None, -1))
        row.same += reference() is largest and 0 <= before == now
        self._largest[at] = weakref.ref(largest), now

        line = self._line()

        def freed(_: Any) -> None:
            row.freed += self._line() == line

        self._copies.append(weakref.ref(memo[id(largest)], self.guarded(freed)))

    def _line(self) -> tuple[Any, ...]:
        frame = self.context.frames.user_frame()[0]
        return () if frame is None else (frame.f_code, frame.f_lineno)

    def stop(self) -> None:
        super().stop()
        for row in self._rows.values():
            row.all = self.context.global_step + 1
            self.context.add(row)
        self._rows, self._copies = {}, []


def _bytes(arrays: list[Any]) -> int:
    """Of what they lie in: views share it."""
    stored = {
        (storage_key(each), storage_bytes(each) or 0)
        if isinstance(each, torch.Tensor)
        else (id(each), each.nbytes)
        for each in arrays
    }
    return sum(size for _, size in stored)
