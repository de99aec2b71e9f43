"""``audit mcp``: a server on stdin and stdout, until its client closes them."""

from __future__ import annotations

from pathlib import Path

from auditor.errors import AuditProblem


def serve() -> int:
    """Serve; returns the exit code. Raises :class:`AuditProblem` without the package mcp."""
    try:
        from auditor.extensions.mcp.server import serving
    except ModuleNotFoundError as lacking:
        if (lacking.name or "").partition(".")[0] == "auditor":
            raise
        raise AuditProblem(
            f"audit mcp needs the package mcp, version 2 or newer: {lacking}",
            "pip install 'torch-step-audit[mcp]'",
        ) from None
    serving(Path.cwd())
    return 0
