"""Errors that the user sees as one sentence: what, where, and the way out."""

from __future__ import annotations


class AuditProblem(Exception):
    """The audit cannot be done; exit code 2. ``hint`` is the way out, ``detail`` (a traceback) is shown with ``--debug``."""

    def __init__(self, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail


class TargetProblem(AuditProblem):
    """The target cannot be run: not found, not importable, not callable without arguments."""
