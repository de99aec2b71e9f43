"""``StepAudit`` for other frameworks under its public name (docs/python.md)."""

from __future__ import annotations

from auditor.extensions.integrations.step_audit import StepAudit

__all__ = ["StepAudit"]
