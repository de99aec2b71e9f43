"""DATA010 to 12: what a data set does for each sample."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema import DrawsRow, ListedRow, RereadRow
from auditor.rule import Rule, knob
from auditor.syntax.index import called_in, nodes_in, targets_of

from .batches import time_inside


@dataclass(frozen=True)
class TensorOfListOfArrays(Rule):
    """A tensor is made of a list of NumPy arrays."""

    code = "DATA010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.05, "Share of the step, or of a batch's making, from which it is reported."
    )
    least_us: float = knob(100.0, "Time in a step, or for a batch, from which it is reported (us).")

    def detect(self, lists: Rows[ListedRow], steps: Steps, machine: Machine) -> Iterator[Finding]:
        watched = len(steps.loud)
        for each in lists:
            us, share = time_inside(each, each.n, steps)
            if not (each.n and watched) or share < self.share or us < self.least_us:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"{taken}, {part} of a worker's time for a batch"
                if in_worker
                else f"{taken} per step, {part} of it"
            )
            yield Finding(
                each.site,
                f"a list of {each.arrays / each.n:.3g} NumPy arrays becomes a tensor number by "
                f"number ({each.numbers / each.n:,.0f} of them): {costs}",
                steps=watched,
                per_step=each.n / watched,
                lost_us_per_step=None if in_worker else us,
                basis="none" if in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if in_worker else None,
                facts=(("time inside", taken),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Put the arrays together first: torch.from_numpy(np.stack(arrays)), with .to(dtype) "
            "where another dtype is wanted."
        )


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
        for file, cls in source.every(ast.ClassDef)
        if cls.name == owner
        for node in nodes_in(cls, ast.Assign, ast.AnnAssign)
        if _gives(node, attribute)
    ]
    return found[0] if len(found) == 1 else None


def _gives(node: ast.Assign | ast.AnnAssign, name: str) -> bool:
    given = any(name_of(each) == name for each in targets_of(node))
    return given and bool(called_in(node.value or node) & MAKERS)


@dataclass(frozen=True)
class FileReadAgain(Rule):
    """A whole file is read again for each sample."""

    code = "DATA012"
    severity = Severity.WARNING
    since = "0.1"

    again: float = knob(0.5, "Share of a line's reads that must read a file of the batch again.")
    share: float = knob(
        0.1, "Share of the step, or of a batch's making, from which it is reported."
    )
    least_us: float = knob(200.0, "Time in a step, or for a batch, from which it is reported (us).")

    def detect(self, files: Rows[RereadRow], steps: Steps, machine: Machine) -> Iterator[Finding]:
        for each in files:
            us, share = time_inside(each, each.batches, steps)
            if not (each.batches and each.n and steps.loud) or each.again < self.again * each.n:
                continue
            if share < self.share or us < self.least_us:
                continue
            in_worker = each.where == "worker"
            taken, part = amounts.duration(us), amounts.percent(share)
            costs = (
                f"times for a batch: {taken}, {part} of a worker's time for it"
                if in_worker
                else f"times a step: {taken}, {part} of it"
            )
            reads = each.n / each.batches
            yield Finding(
                each.site,
                f"{each.name} reads a whole file ({os.path.basename(each.path)}, "
                f"{amounts.size(each.bytes)}) again and again, {reads:.3g} {costs}",
                steps=len(steps.loud),
                per_step=reads,
                lost_us_per_step=None if in_worker else us * each.again / each.n,
                basis="none" if in_worker else "estimated",
                seen_on=machine.device,
                severity=Severity.NOTE if in_worker else None,
                facts=(("file", each.path), ("time inside", taken)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Read it once, in __init__ or when the first sample is asked for, and only index it "
            'here: np.load(..., mmap_mode="r") maps an array that is larger than memory.'
        )
