"""Calls of another library's function that only shares its name with torch's.

A run shows that ``DataLoader`` was made at a line; where the name there is that of a library which
wraps torch's, it need not take torch's keywords.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from auditor.model import Edit
from auditor.patch.module import Module
from auditor.patch.source import Refused, SourceText
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
