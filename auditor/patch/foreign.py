"""Calls of another library's function that only shares its name with torch's.

A run shows that ``DataLoader`` was made at a line; where the name there is that of a library which
wraps torch's, it need not take torch's keywords.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from auditor.model import Edit
from auditor.patch.module import Module
from auditor.patch.source import Refused, SourceText
from auditor.syntax.index import name_of

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
            module = Module(SourceText.from_bytes(raw))
            module.expect_line(edit)
            calls = module.calls(edit)
        except Refused:
            continue  # the patcher says why
        homes = dict(_homes(module.tree))
        for call in calls:
            home = homes.get(_root(call.func), "")
            given = any(item.arg == edit.keyword for item in call.keywords)
            standard = home in sys.stdlib_module_names
            if home and home not in KNOWN | own and (standard or not given):
                return (
                    f"line {edit.site.line} of {edit.site.file} calls `{name_of(call.func)}` of "
                    f"{home}, which need not take what torch's does"
                )
    return ""


def _homes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a file imports, and the package of each; none for what is the program's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                top = item.name.partition(".")[0]
                yield item.asname or top, top
        elif isinstance(node, ast.ImportFrom) and not node.level:
            top = (node.module or "").partition(".")[0]
            yield from ((item.asname or item.name, top) for item in node.names)


def _root(function: ast.expr) -> str:
    """``a`` of ``a.b.c``; empty where it does not begin with a name."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""
