"""The folder in which the auditor keeps what it would otherwise make anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = "AUDIT_CACHE_DIR"
"""Environment variable that names the folder; empty is no name."""


def user_cache() -> Path | None:
    """``$AUDIT_CACHE_DIR``, else ``torch-step-audit`` in the user's cache directory:
    ``$XDG_CACHE_HOME``, else ``~/.cache``. None where that is no absolute path, which the XDG
    specification says to ignore.
    """
    if named := os.environ.get(FOLDER):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "torch-step-audit" if os.path.isabs(base) else None
