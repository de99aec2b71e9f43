"""``AuditCallback`` for Lightning under its public name (docs/python.md)."""

from __future__ import annotations

from auditor.extensions.integrations.lightning import AuditCallback

__all__ = ["AuditCallback"]
