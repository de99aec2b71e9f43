"""``AuditCallback`` for Transformers under its public name (docs/python.md)."""

from __future__ import annotations

from auditor.extensions.integrations.transformers import AuditCallback

__all__ = ["AuditCallback"]
