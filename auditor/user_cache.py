"""The folder in which the auditor keeps what it would otherwise make anew."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path | None:
    """``torch-step-audit`` in the user's cache directory: ``$XDG_CACHE_HOME``, else ``~/.cache``.
    None where that is no absolute path, which the XDG specification says to ignore.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "torch-step-audit" if os.path.isabs(base) else None
