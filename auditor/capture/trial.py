"""What a trial of ``audit verify`` sets up before the target is imported: the seeds, and how many workers its loaders get."""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
from typing import Any

from auditor.capture.importing import AfterImport
from auditor.plan import Loaders, Trial


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's (of the devices too) when they are imported."""
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()
    loaders = trial.loaders
    if loaders is not None:
        AfterImport("torch", lambda: _staff(loaders)).install()


def _staff(loaders: Loaders) -> None:
    """Give the loaders that are made at the line their workers, whatever its call says; for the rest of this process."""
    from torch.utils.data import DataLoader

    make = DataLoader.__init__
    signature, file = inspect.signature(make), os.path.realpath(loaders.file)

    @functools.wraps(make)
    def staffed(loader: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(loader, *args, **kwargs)
        if given.arguments.get("num_workers", 0) != loaders.workers and _called_at(file, loaders.line):
            given.arguments.update(num_workers=loaders.workers, persistent_workers=loaders.workers > 0)
            if not loaders.workers:  # what only workers may have
                for name in ("prefetch_factor", "multiprocessing_context", "timeout", "worker_init_fn"):
                    given.arguments.pop(name, None)
        make(*given.args, **given.kwargs)

    DataLoader.__init__ = staffed  # type: ignore[method-assign,assignment]


def _called_at(file: str, line: int) -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_lineno == line and os.path.realpath(frame.f_code.co_filename) == file:
            return True
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return False
