"""Which of a report's edits a file has already: told from the file as it was recorded and as it is
now.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from auditor.model import Edit
from auditor.patch.edits import apply_edits
from auditor.patch.source import Refused


def made_already(recorded: bytes, current: bytes, edits: Sequence[Edit]) -> tuple[Edit, ...] | None:
    """The edits that turn ``recorded`` into ``current``; None if something else changed as well."""
    if current == recorded:
        return ()
    if _applied(recorded, edits) == current:
        return tuple(edits)
    made: tuple[Edit, ...] = ()
    text = recorded
    for edit in edits:
        after = _applied(recorded, [*made, edit])
        if after is not None and _distance(after, current) < _distance(text, current):
            made, text = (*made, edit), after
    return made if text == current else None


def _applied(recorded: bytes, edits: Sequence[Edit]) -> bytes | None:
    try:
        return apply_edits(recorded, edits)
    except Refused:
        return None


def _distance(one: bytes, other: bytes) -> int:
    """Lines that are not the same in both."""
    matcher = difflib.SequenceMatcher(None, one.splitlines(), other.splitlines(), autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")
