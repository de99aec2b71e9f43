"""What a trial of ``audit verify`` sets up before the target is imported: the seeds, and other
arguments for its loaders.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
from typing import Any

from auditor.capture.instruments.call_places import comes_from
from auditor.capture.instruments.import_hook import AfterImport
from auditor.capture.instruments.torch_private.compiler import SETTINGS, draw_as_eager
from auditor.runs.plan import Loaders, Trial


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's (of the devices too) when they are
    imported.
    """
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()
    if trial.eager_random:
        AfterImport(SETTINGS, draw_as_eager).install()
    loaders = trial.loaders
    if loaders is not None:
        AfterImport("torch", lambda: _give(loaders)).install()


WORKERS_ONLY = (
    "prefetch_factor",
    "multiprocessing_context",
    "timeout",
    "worker_init_fn",
    "persistent_workers",
)
"""Arguments that a DataLoader without workers refuses, or has no use for."""


def _give(loaders: Loaders) -> None:
    """Give the loaders that are made at the line their arguments, whatever its call says; for the
    rest of this process.
    """
    from torch.utils.data import DataLoader

    make = DataLoader.__init__
    signature = inspect.signature(make)
    places = {(os.path.realpath(loaders.file), loaders.line)}

    @functools.wraps(make)
    def made(loader: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(loader, *args, **kwargs)
        if loaders.arguments and comes_from(sys._getframe(1), places):
            given.arguments.update(loaders.arguments)
            if not given.arguments.get("num_workers", 0):
                for name in WORKERS_ONLY:
                    given.arguments.pop(name, None)
        make(*given.args, **given.kwargs)

    DataLoader.__init__ = made  # type: ignore[method-assign,assignment]
