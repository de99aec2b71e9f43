"""Hooks that a step registers on modules and tensors and that nobody removes."""

from collections import defaultdict
from typing import Any

from torch.utils.hooks import RemovableHandle

from auditor.capture.probes.base import Context, Probe

from ..rows import HooksRow

MOST = 10_000
"""Hooks that are remembered."""


class HooksProbe(Probe):
    """Writes ``hooks`` at the pass's end: a row per line whose registered hooks are there."""

    name = "hooks"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._registered: list[tuple[int, int, Any, int]] = []
        """Line, step, a weak reference to the hooks of the module or tensor, and the hook's key."""

    def start(self) -> None:
        super().start()
        self._patches.around(RemovableHandle, "__init__", after=self._on_hook)

    def _on_hook(self, _: None, handle: RemovableHandle, *__: Any, **___: Any) -> None:
        at = self.context.frames.here() if self.in_step else None
        if at is not None and len(self._registered) < MOST:
            self._registered.append((at, self.context.step, handle.hooks_dict_ref, handle.id))

    def stop(self) -> None:
        super().stop()
        left: dict[int, list[int]] = defaultdict(list)
        for at, step, hooks, key in self._registered:
            if key in (hooks() or ()):
                left[at].append(step)
        self._registered.clear()
        for at, steps in left.items():
            self.context.add(HooksRow(at=at, n=len(steps), steps=len(set(steps))))
