"""The one error of this package."""

from __future__ import annotations


class NullDeviceProblem(Exception):
    """There is no null device for what was asked; ``hint`` is the way out, ``detail`` what the
    compiler said.
    """

    def __init__(self, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail
