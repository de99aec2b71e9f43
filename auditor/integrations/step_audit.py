"""``StepAudit`` for other frameworks under its public name (docs/python.md)."""

from auditor.extensions.integrations.step_audit import StepAudit

__all__ = ["StepAudit"]
