"""Random generators from which several workers of a loader drew the same numbers."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import DrawsRow

MAKERS = frozenset(
    {"default_rng", "RandomState", "Random", "Generator", "manual_seed", "check_random_state"}
)
"""Calls that make a generator."""


@dataclass(frozen=True)
class Repeated:
    """``workers`` of the ``loader`` drew the same numbers from their copies of the generator that
    ``name`` leads to. ``site``: where the program makes it, if one line does, else the loader's.
    """

    site: Site | None
    loader: Loader | None
    name: str
    kind: str
    workers: tuple[int, ...]


@dataclass(frozen=True)
class RepeatedDraws(Table):
    """All of them; a recording from before there were any has none."""

    parts: ClassVar[tuple[str, ...]] = ("draws",)

    found: tuple[Repeated, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> RepeatedDraws:
        """From what workers told of their first batch."""
        rows = rows_of(evidence, DrawsRow)
        loaders = {each.number: each for each in evidence.get(Batches).loaders} if rows else {}
        source = evidence.get(Source)
        return cls(tuple(_repeated(source, row, loaders.get(row.loader)) for row in rows))


def _repeated(source: Source, row: DrawsRow, loader: Loader | None) -> Repeated:
    site = _made(source, row) or (loader and (loader.made_at or loader.consumed_at))
    return Repeated(site or None, loader, row.name, row.kind, tuple(row.workers))


def _made(source: Source, row: DrawsRow) -> Site | None:
    """The only line of the owner's class that gives a new generator to its attribute."""
    attribute, owner = row.name.rpartition(".")[2], row.owner.rpartition(".")[2]
    found = [
        source.site_of(file, node)
        for file in source.texts
        for cls in source.nodes(file)
        if isinstance(cls, ast.ClassDef) and cls.name == owner
        for node in ast.walk(cls)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _gives(node, attribute)
    ]
    return found[0] if len(found) == 1 else None


def _gives(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not any(isinstance(each, ast.expr) and name_of(each) == name for each in targets):
        return False
    calls = (each for each in ast.walk(node.value or node) if isinstance(each, ast.Call))
    return any(name_of(call.func) in MAKERS for call in calls)
