"""What a trial of ``audit verify`` sets up before the target is imported: seeds, and imports from the copy of its folder."""

from __future__ import annotations

import os
import random
import sys

from auditor.capture.importing import AfterImport
from auditor.plan import Trial


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's (of the devices too) when they are imported; import from the copy."""
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()
    sys.path[:] = [moved(entry, trial.copy_of, trial.folder) for entry in sys.path]


def moved(entry: str, copy_of: str, folder: str) -> str:
    """An entry of ``sys.path`` below ``copy_of`` as it is in the copy; an environment inside the project stays where it is."""
    below = entry == copy_of or entry.startswith(copy_of.rstrip(os.sep) + os.sep)
    installed = "site-packages" in entry or entry.startswith(sys.prefix + os.sep)
    return folder + entry[len(copy_of.rstrip(os.sep)) :] if below and not installed else entry
