"""Processes that a script starts itself by ``multiprocessing``: what they train is not recorded,
and the user should hear so.
"""

from __future__ import annotations

import os
from multiprocessing.process import BaseProcess
from typing import Any

from auditor.capture.instruments.monkeypatch import Patches
from auditor.errors import TargetProblem

LOADERS = ("torch.utils.data.", "multiprocessing.")
"""Modules whose processes do not train: workers of data loaders, managers."""


class SpawnedProcesses:
    """Counts them, between :meth:`install` and :meth:`uninstall`."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._own = os.getpid()
        self.n = 0

    def install(self) -> None:
        """Look at each process as it is started."""
        self._patches.around(BaseProcess, "start", before=self._starts)

    def uninstall(self) -> None:
        """Look no more. May be called twice."""
        self._patches.undo()

    def _starts(self, process: Any) -> None:
        module = (
            getattr(getattr(process, "_target", None), "__module__", None)
            or type(process).__module__
        )
        self.n += os.getpid() == self._own and not module.startswith(LOADERS)


def no_step(path: str, spawned: int) -> TargetProblem:
    """What to say of a script that ended without a step; ``spawned`` processes may have made
    some.
    """
    if spawned:
        return TargetProblem(
            f"{path} itself made no optimizer.step(): it started {spawned} "
            f"process{'es' * (spawned > 1)} by multiprocessing, which are not recorded",
            "let one process train; for several give --nproc N and a script that reads RANK as "
            "torchrun sets it, or name a function that takes one step: file.py:callable",
        )
    return TargetProblem(
        f"{path} ended without a single optimizer.step() or update of parameters under "
        "torch.no_grad(), so there is no training step to audit",
        "give the arguments it needs after --, or name a function that takes one step: "
        "file.py:callable",
    )
