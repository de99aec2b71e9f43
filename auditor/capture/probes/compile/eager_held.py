"""Holds ``torch.compile`` off for a pass, to find what it gains."""

from __future__ import annotations

from collections.abc import Callable

import torch

from auditor.capture.probes.base import Context, Probe


class EagerHeldProbe(Probe):
    """Writes nothing: compiled functions run eagerly in the pass ``eager_held``, as with
    ``torch.compiler.set_stance("force_eager")``. What was compiled stays in the compiler's cache.
    """

    name = "eager_held"
    parts = ("steps",)
    passes = frozenset({"eager_held"})
    always = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._back: Callable[[], None] | None = None

    def start(self) -> None:
        """Hold it off."""
        held = torch.compiler.set_stance("force_eager")
        self._back = lambda: held.__exit__(None, None, None)

    def stop(self) -> None:
        """Compile again as the program would."""
        back, self._back = self._back, None
        if back is not None:
            back()
