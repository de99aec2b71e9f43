"""Tracebacks of the target's errors, as they would look without the auditor around and beneath the user's code."""

from __future__ import annotations

from traceback import StackSummary, TracebackException

from auditor.capture.frames import OWN


def without_own(told: TracebackException) -> TracebackException:
    """The same without frames of ours, in the errors that it came from too. Changed in place; an error of our own stays whole."""
    todo, seen = [told], set()
    while todo:
        each = todo.pop()
        seen.add(id(each))
        theirs = [frame for frame in each.stack if not frame.filename.startswith(OWN)]
        if theirs:
            each.stack = StackSummary.from_list(theirs)
        related = (each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ()))
        todo += [other for other in related if other is not None and id(other) not in seen]
    return told
