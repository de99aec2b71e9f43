"""What a trial of ``audit verify`` sets up before the target is imported: seeds, and imports from the copy of its folder."""

from __future__ import annotations

import os
import random
import sys

from auditor.capture.importing import AfterImport
from auditor.plan import Trial


def prepare(trial: Trial) -> None:
    """Seed Python's generator now and NumPy's when it is imported; look modules up in the copy."""
    random.seed(trial.seed)
    AfterImport("numpy", lambda: _seed_numpy(trial.seed)).install()
    sys.path[:] = [moved(entry, trial.copy_of, trial.folder) for entry in sys.path]


def seed_torch(seed: int) -> None:
    """Seed torch's generators, of the devices too."""
    import torch

    torch.manual_seed(seed)


def _seed_numpy(seed: int) -> None:
    sys.modules["numpy"].random.seed(seed)


def moved(entry: str, copy_of: str, folder: str) -> str:
    """An entry of ``sys.path`` below ``copy_of`` as it is in the copy; an environment inside the project stays where it is."""
    below = entry == copy_of or entry.startswith(copy_of.rstrip(os.sep) + os.sep)
    installed = "site-packages" in entry or entry.startswith(sys.prefix + os.sep)
    return folder + entry[len(copy_of.rstrip(os.sep)) :] if below and not installed else entry
