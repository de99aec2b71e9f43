"""A training-step auditor for PyTorch: the exact line, its measured price, and a patch that applies."""

from __future__ import annotations

from pathlib import Path

from auditor.model import Edit, Finding, Remedy, Report, Severity, Site, Verdict

__version__ = "0.1.0"

# In a checkout the rooms rules/ and reports/ stand beside this one; an installed copy holds them inside.
_root = Path(__path__[0]).parent
if (_root / "rules").is_dir() and (_root / "reports").is_dir() and (_root / "pyproject.toml").is_file():
    __path__.append(str(_root))

__all__ = ["Edit", "Finding", "Remedy", "Report", "Severity", "Site", "Verdict", "__version__"]
