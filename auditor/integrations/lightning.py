"""``AuditCallback`` for Lightning under its public name (docs/python.md)."""

from auditor.extensions.integrations.lightning import AuditCallback

__all__ = ["AuditCallback"]
