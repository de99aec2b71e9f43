"""The source around a finding: a few lines, and the heads of function and classes."""

from __future__ import annotations

import ast
from functools import lru_cache

from auditor.model import Excerpt, Site
from auditor.recordings.folder import Recording
from auditor.syntax.index import index_of

AROUND = 4
"""Lines shown before and after the finding's own."""

NEAR = 12
"""A function that begins so few lines above is shown from its head on."""


def excerpt(recording: Recording, site: Site) -> Excerpt:
    """Around a site, from the source as it was recorded; empty where it was not."""
    lines = recording.source(site.file)
    heads = [number for number in _heads("\n".join(lines), site.line) if number <= len(lines)]
    first = max(1, site.line - AROUND)
    if heads and first - NEAR <= heads[-1] < first:
        first = heads[-1]
    opening = tuple((number, lines[number - 1]) for number in heads if number < first)
    return Excerpt(site.file, first, tuple(lines[first - 1 : site.line + AROUND]), opening)


def _heads(text: str, line: int) -> list[int]:
    return [first for first, last in _blocks(text) if first <= line <= last]


@lru_cache(maxsize=16)
def _blocks(text: str) -> tuple[tuple[int, int], ...]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        (node.lineno, node.end_lineno or node.lineno)
        for node in index_of(text).nodes
        if isinstance(node, kinds)
    )
    return tuple(sorted(found, key=lambda block: (block[0], -block[1])))
