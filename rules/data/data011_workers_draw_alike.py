"""DATA011: the workers of a loader draw the same random numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema import DrawsRow
from auditor.rule import Rule

MAKERS = frozenset(
    {"default_rng", "RandomState", "Random", "Generator", "manual_seed", "check_random_state"}
)
"""Calls that make a generator."""


@dataclass(frozen=True)
class WorkersDrawAlike(Rule):
    """The workers of a loader draw the same random numbers."""

    code = "DATA011"
    severity = Severity.WARNING
    since = "0.1"

    def detect(
        self, draws: Rows[DrawsRow], batches: Batches, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        loaders = {each.number: each for each in batches.loaders}
        for each in draws:
            loader = loaders.get(each.loader)
            made, used = (loader.made_at, loader.consumed_at) if loader else (None, None)
            site = _made(source, each) or made or used
            of = f" of the loader made at {made}" if made is not None and made != site else ""
            yield Finding(
                site,
                f"{len(each.workers)} workers{of} draw the same numbers: each has a copy of "
                f"{each.name} ({each.kind}) in the same state",
                per_step=1.0,
                seen_on=machine.device,
                facts=(("loader", str(made)),) if made is not None else (),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Make the generator in the worker: in worker_init_fn, or when the first sample is "
            "asked for, from torch.initial_seed(), which differs by worker and epoch."
        )


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
