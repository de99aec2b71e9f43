"""Modules that were put into eval mode and trained on in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.evaluations import evaluates
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import SwitchedRow


@dataclass(frozen=True)
class Switch:
    """``site`` put a ``module`` into eval mode, ``before`` steps of an optimizer after it was made
    or put into train mode; ``steps`` more followed in eval mode.

    ``parts``: what of it acts otherwise in train mode, and how many of each class. ``evaluates``:
    the program then turned gradients off.
    """

    site: Site
    module: str
    parts: Mapping[str, int]
    before: int
    steps: int
    evaluates: bool


@dataclass(frozen=True)
class EvalModeSteps(Table):
    """All lines that did so; empty where none did."""

    parts: ClassVar[tuple[str, ...]] = ("switched",)

    switches: tuple[Switch, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> EvalModeSteps:
        """From steps of all passes up to the diagnostic one."""
        source = evidence.get(Source)
        return cls(tuple(_switch(evidence, source, row) for row in rows_of(evidence, SwitchedRow)))

    def after_evaluating(self, steps: int) -> Iterator[Switch]:
        """Those that were put there for an evaluation, and took so many steps since."""
        return (each for each in self.switches if each.evaluates and each.steps >= steps)


def _switch(evidence: Evidence, source: Source, row: SwitchedRow) -> Switch:
    site = evidence.recording.site(row.at)
    off = not row.grads or evaluates(source, site)
    return Switch(site, row.module, row.parts, row.before, row.steps, off)
