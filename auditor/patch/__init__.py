"""Turns declarative edits into a unified diff of the user's own file that ``git apply`` accepts, or
says why not.

Standard library only: ``ast`` gives exact spans, edits are spliced into the text, ``difflib`` makes
the diff. Each result is parsed again and its tree compared with the intended change, so comments
and layout around an edit cannot move. libcst would do the same at 24 times the time on a 3,000-line
file, and is a dependency more.
"""

from __future__ import annotations

import ast
import difflib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from auditor.model import Edit
from auditor.patch.edits import apply_edits
from auditor.patch.module import Module
from auditor.patch.plan import PatchedFile, Plan, check, plan, write
from auditor.patch.source import Refused, SourceText
from auditor.patch.trees import (
    diff_bytes,
    is_theirs,
    joined_diff,
    leads_out,
    place_of,
    require_own_file,
    shows_line,
)
from auditor.syntax.index import grouped, is_path, name_of, unparsed

KNOWN = frozenset({"torch", "torchvision", "torch_geometric", "monai"})
"""Libraries whose functions take what torch's of the same name take."""

REWRITES = frozenset({"set_keyword", "drop_keyword", "rename_call", "modernize_amp"})
"""Edits that leave a call behind: it must take what is written."""


def another_librarys(
    edits: Iterable[Edit], read: Callable[[str], bytes | None], manifest: Mapping[str, Any]
) -> str:
    """Why these edits are not made: the first call of another library's function, in one sentence;
    empty if there is none.

    A function of the program's own is none: the line that was seen is in it, not where it is called.
    Nor is a call that is given the keyword already, unless it is the standard library's.
    """
    own = {
        PurePath(part).stem
        for file in manifest.get("sources") or ()
        for part in PurePath(file).parts
    }
    for edit in edits:
        raw = read(edit.site.file) if edit.call and edit.action in REWRITES else None
        if raw is None:
            continue
        try:
            module, homes = _parsed(raw)
            module.expect_line(edit)
            calls = module.calls(edit)
        except Refused:
            continue  # the patcher says why
        for call in calls:
            root = unparsed(call.func).partition(".")[0] if is_path(call.func) else ""
            given = any(item.arg == edit.keyword for item in call.keywords)
            for home in homes.get(root, ()):
                if home not in KNOWN | own and (not given or home in sys.stdlib_module_names):
                    return (
                        f"line {edit.site.line} of {edit.site.file} calls `{name_of(call.func)}` "
                        f"of {home}, which need not take what torch's does"
                    )
    return ""


@lru_cache(maxsize=4)
def _parsed(raw: bytes) -> tuple[Module, Mapping[str, list[str]]]:
    module = Module(SourceText.from_bytes(raw))
    return module, grouped(_homes(module.parents))


def _homes(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for item in node.names:
                top = item.name.partition(".")[0]
                yield item.asname or top, top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            top = (node.module or "").partition(".")[0]
            yield from ((item.asname or item.name, top) for item in node.names)


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
