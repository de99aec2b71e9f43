"""``AuditTracker`` for Accelerate under its public name (docs/python.md)."""

from auditor.extensions.integrations.accelerate import AuditTracker

__all__ = ["AuditTracker"]
