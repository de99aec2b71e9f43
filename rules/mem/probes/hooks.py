"""Hooks that a step registers on modules and tensors and that nobody removes."""

from collections import defaultdict
from typing import Any

from torch.utils.hooks import RemovableHandle

from auditor.capture.probes.base import Context, Probe

from ..rows import HooksRow

MOST, TIMED = 10_000, 64
"""Hooks that are remembered, and of them those that steps register before the pass."""


class HooksProbe(Probe):
    """Writes ``hooks`` at the pass's end: a row per line whose registered hooks are there. They are
    noted from the first step on, since a report may register them seldom.
    """

    name = "hooks"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._registered: list[tuple[int, int, Any, int]] = []
        """Line, step, a weak reference to the hooks of the module or tensor, and the hook's key."""

    def install(self) -> None:
        self._always.around(RemovableHandle, "__init__", after=self._on_hook)

    def _on_hook(self, _: None, handle: RemovableHandle, *__: Any, **___: Any) -> None:
        if not self.in_step or len(self._registered) >= (MOST if self.watching else TIMED):
            return
        at = self.context.frames.here()
        if at is not None:
            noted = at, self.context.global_step, handle.hooks_dict_ref, handle.id
            self._registered.append(noted)

    def stop(self) -> None:
        super().stop()
        left: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, step, reference, key in self._registered:
            hooks = reference()
            if hooks is not None and key in hooks:
                left[at][id(hooks)].append(step)
        self._registered.clear()
        for at, owners in left.items():
            n, steps = sum(map(len, owners.values())), max(len({*each}) for each in owners.values())
            self.context.add(HooksRow(at=at, n=n, steps=steps, all=self.context.global_step + 1))
