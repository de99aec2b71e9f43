"""Whether a program is run for a while with ``torch.compile`` held off, to find what it gains."""

from __future__ import annotations

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.base import Context

PATIENCE = 3.0
"""The pass ends when it has taken so many times as long as the timing pass."""

LEAST = 10
"""Steps that it takes all the same: an interval needs some."""

FREE_SHARE = 0.5
"""Share of a GPU's memory that the program must never have used: an eager step may need far more
than a compiled one, and running out of memory would be our doing.
"""


class HeldEager:
    """Says after the timing pass whether a pass ``eager_held`` follows, and when that has lasted
    long enough.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._quiet_s = 0.0
        self._calls = 0

    def begins(self) -> None:
        """A pass begins."""
        self._calls = COMPILED_CODE.calls

    def wanted(self, seconds: float) -> bool:
        """When the timing pass has ended, which took so long: compiled functions ran in it, and
        there is room.
        """
        self._quiet_s = seconds
        if COMPILED_CODE.calls == self._calls:
            return False
        if not _room(self._context):
            self._context.warn(
                "what torch.compile gains was not measured: without it the step may need more "
                "memory than the GPU has"
            )
            return False
        return True

    def enough(self, done: int, seconds: float) -> bool:
        """After ``done`` steps of the pass, which took so long."""
        return done >= LEAST and seconds > PATIENCE * self._quiet_s


def _room(context: Context) -> bool:
    if not context.device.native:
        return True
    return all(
        torch.cuda.max_memory_reserved(each)
        <= FREE_SHARE * torch.cuda.get_device_properties(each).total_memory
        for each in range(torch.cuda.device_count())
    )
