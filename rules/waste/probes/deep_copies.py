"""Deep copies of objects that hold modules, and data beside them."""

import copy
import functools
import time
from typing import Any

from torch import nn

from auditor.capture.probes.base import Context, Probe

from ..rows import DeepCopyRow


class DeepCopiesProbe(Probe):
    """Writes ``deep_copies`` at the pass's end, of all steps until then."""

    name = "deep_copies"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._rows: dict[int, DeepCopyRow] = {}

    def install(self) -> None:
        original, looked = copy.deepcopy, self.guarded(self._looked)

        @functools.wraps(original)
        def deepcopy(x: Any, memo: Any = None, *more: Any) -> Any:
            if memo is not None or isinstance(x, nn.Module) or not self.in_step:
                return original(x, memo, *more)
            memo, start = {}, time.thread_time()  # gets each copy by the number of what was copied
            result = original(x, memo)
            looked(type(x).__name__, memo, (time.thread_time() - start) * 1e6)
            return result

        self._always.builtin(copy, "deepcopy", deepcopy, self.context.frames.user_modules())

    def _looked(self, name: str, memo: dict[int, Any], us: float) -> None:
        at, copied = self.context.frames.here(), memo.pop(id(memo), ())
        modules = (each for each in copied if isinstance(each, nn.Module))
        held = [each for module in modules for each in (*module.parameters(), *module.buffers())]
        shapes = {each.shape for each in held}  # also of gradients, moments and averages
        sized = (each for each in copied if isinstance(getattr(each, "nbytes", None), int))
        data = [each for each in sized if each.shape not in shapes]
        if at is None or not held or not data:
            return
        new = DeepCopyRow(at=at, name=name, bytes=sum(each.nbytes for each in data))
        new.state = sum(each.nbytes for each in held)
        row = self._rows.setdefault(at, new)
        row.n += 1
        row.us += us

    def stop(self) -> None:
        super().stop()
        for row in self._rows.values():
            row.all = self.context.global_step + 1
            self.context.add(row)
        self._rows = {}
