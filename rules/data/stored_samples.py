"""DATA014: a dataset changes the samples that it stores."""

import ast
from collections.abc import Iterator
from typing import ClassVar

from auditor.evidence.source.files import Function, Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Site
from auditor.recordings.schema.graph import CensusRow
from auditor.syntax.index import nodes_in, targets_of

from ..census import CensusSays

COPIES = frozenset({"copyto", "put", "place", "copy_", "fill_", "zero_"})
"""Calls that put other values into a place."""


class StoredSampleChanges(CensusSays):
    """A dataset changes its stored samples while it returns them."""

    code = "DATA014"
    SAID: ClassVar = {
        "sample": "{row.name} overwrites its stored data: fetching a sample changed {row.n} of "
        "{row.steps} watched rows of self.{row.other}, and the changes add up over the epochs",
    }
    advice = (
        "Copy the row before it is changed in place: self.features[index].clone(), or .copy() of "
        "an array."
    )

    def detect(self, census: Rows[CensusRow], source: Source) -> Iterator[Finding]:
        """At the statement that takes the row; not where the class says that it writes there."""
        for row in census:
            if row.kind not in self.SAID or row.site is None:
                continue
            methods = _methods(source, row.site)
            later = [each for each in methods if each.name != "__init__"]
            if not any(_writes(each, row.other) for each in later):
                later.sort(key=lambda each: each.name != "__getitem__")
                takes = (_taken(each, row.other) for each in later)
                line = next(filter(None, takes), None)
                site = row.site if line is None else source.site_of(row.site.file, line)
                yield Finding(site, self.said(row))


def _methods(source: Source, site: Site) -> list[Function]:
    """Those of the class around a method's first line."""
    inside = source.index(site.file).on(site.line, ast.ClassDef)
    cls = max(inside, key=lambda each: each.lineno, default=None)
    return [] if cls is None else [each for each in cls.body if isinstance(each, Function)]


def _holds(node: ast.AST | None, attribute: str) -> bool:
    """It is the attribute, or an element of it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr == attribute


def _writes(method: Function, attribute: str) -> bool:
    """It says that it puts something into the attribute: a cache, or a table that it keeps."""
    for node in nodes_in(method, ast.Assign, ast.AugAssign, ast.AnnAssign):
        parts = (part for each in targets_of(node) for part in ast.walk(each))
        if any(_holds(each, attribute) and isinstance(each.ctx, ast.Store) for each in parts):  # type: ignore[attr-defined]  # what holds is a subscript or an attribute
            return True
    for call in nodes_in(method, ast.Call):
        own = call.func.value if isinstance(call.func, ast.Attribute) else None
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg == "out"), own]
        named = name_of(call.func) in COPIES or any(each.arg == "out" for each in call.keywords)
        if named and any(_holds(each, attribute) for each in given):
            return True
    return False


def _taken(method: Function, attribute: str) -> ast.stmt | None:
    """The first statement that gives an element of it a name, or returns it."""
    found = (
        node
        for node in nodes_in(method, ast.Assign, ast.Return, ast.Expr)
        if node.value is not None
        and any(_holds(each, attribute) for each in nodes_in(node.value, ast.Subscript))
    )
    return min(found, key=lambda node: node.lineno, default=None)
