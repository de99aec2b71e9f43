"""What a trial of ``audit verify`` sets up before the target is imported: the seeds."""

from __future__ import annotations

import random
import sys

from auditor.capture.instruments.import_hook import AfterImport
from auditor.runs.plan import Trial


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's (of the devices too) when they are
    imported.
    """
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()
    if trial.eager_random:
        AfterImport("torch", _draw_as_eager).install()


def _draw_as_eager() -> None:
    from auditor.capture.instruments.torch_private.compiler import SETTINGS, draw_as_eager

    AfterImport(SETTINGS, draw_as_eager).install()
