"""Turns declarative edits into a unified diff of the user's own file that ``git apply`` accepts, or
says why not.

Standard library only: ``ast`` gives exact spans, edits are spliced into the text, ``difflib`` makes
the diff. Each result is parsed again and its tree compared with the intended change, so comments
and layout around an edit cannot move. libcst would do the same at 24 times the time on a 3,000-line
file, and is a dependency more.
"""

from __future__ import annotations

from auditor.patch.diff import diff_bytes, shows_line, unified_diff
from auditor.patch.edits import apply_edits
from auditor.patch.own_files import OwnFiles, require_own_file
from auditor.patch.permitted import Permitted
from auditor.patch.plan import PatchedFile, Plan, check, plan, write
from auditor.patch.source import Refused, SourceText
from auditor.patch.standing import made_already
from auditor.patch.trees import is_theirs, joined_diff, leads_out, place_of

__all__ = [
    "OwnFiles",
    "PatchedFile",
    "Permitted",
    "Plan",
    "Refused",
    "SourceText",
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
    "unified_diff",
    "write",
]
