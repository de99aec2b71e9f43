"""How the step clears its gradients: where, with which ``set_to_none``, at what cost."""

from __future__ import annotations

import functools
from time import perf_counter
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema import ZeroGradRow


class ZeroGradProbe(Probe):
    """Writes ``optimizer``.

    The methods of the two base classes are replaced, which every instance sees that was made
    before, and every subclass that calls ``super().zero_grad()``. A subclass with a loop of its own
    has no ``set_to_none`` and is not seen.
    """

    name = "zero_grad"
    parts = ("optimizer",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._inside = False
        self._rows: dict[tuple[int, bool, str], list[float]] = {}

    def start(self) -> None:
        """Replace the two methods."""
        self._rows.clear()
        self.context.writer.touch("optimizer")
        self._patch(torch.optim.Optimizer, "Optimizer")
        self._patch(torch.nn.Module, "Module")

    def stop(self) -> None:
        """Put them back."""
        self._patches.undo()

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, set_to_none, owner), (n, us) in self._rows.items():
            self.context.add(
                ZeroGradRow(at=at, set_to_none=set_to_none, n=int(n), us=us, owner=owner)
            )
        self._rows.clear()

    def _patch(self, cls: type, owner: str) -> None:
        original = cls.zero_grad  # type: ignore[attr-defined]

        @functools.wraps(original)
        def zero_grad(cleared: Any, *args: Any, **kwargs: Any) -> Any:
            at = self.context.frames.here() if self.context.in_step and not self._inside else None
            if at is None:
                return original(cleared, *args, **kwargs)
            self._inside = True  # a wrapper's zero_grad may call that of the optimizer it wraps
            start = perf_counter()
            try:
                return original(cleared, *args, **kwargs)
            finally:
                self._inside = False
                set_to_none = bool(kwargs.get("set_to_none", args[0] if args else True))
                totals = self._rows.setdefault((at, set_to_none, owner), [0, 0.0])
                totals[0] += 1
                totals[1] += (perf_counter() - start) * 1e6

        self._patches.attribute(cls, "zero_grad", zero_grad)
