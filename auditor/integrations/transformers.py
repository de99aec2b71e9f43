"""``AuditCallback`` for Transformers under its public name (docs/python.md)."""

from auditor.extensions.integrations.transformers import AuditCallback

__all__ = ["AuditCallback"]
