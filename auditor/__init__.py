"""A training-step auditor for PyTorch: the exact line, its measured price, a patch that applies."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from auditor.api import Report, audit, watch
    from auditor.capture.shadow import shadow_cuda
    from auditor.model import Edit, Finding, Remedy, Severity, Site, Verdict

__version__ = "0.2.0"

# In a checkout the rooms rules/ and reports/ stand beside this one; an installed copy holds them
# inside.
_root = os.path.dirname(__path__[0])
if all(
    os.path.exists(os.path.join(_root, name)) for name in ("rules", "reports", "pyproject.toml")
):
    __path__.append(_root)

__all__ = [
    "Edit",
    "Finding",
    "Remedy",
    "Report",
    "Severity",
    "Site",
    "Verdict",
    "__version__",
    "audit",
    "shadow_cuda",
    "watch",
]


def _imported(name: str) -> object:
    """The public names, imported when asked for: ``audit --help`` must not pay for them."""
    if name == "shadow_cuda":
        from auditor.capture.shadow import shadow_cuda

        return shadow_cuda
    if name in ("Report", "audit", "watch"):
        from auditor import api

        return getattr(api, name)
    if name == "load_ipython_extension":  # of %load_ext auditor
        from auditor import notebook_magics

        return notebook_magics.load
    if name in __all__:
        from auditor import model

        return getattr(model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not TYPE_CHECKING:  # a type checker reads the imports above, and knows a name that is not there
    __getattr__ = _imported
