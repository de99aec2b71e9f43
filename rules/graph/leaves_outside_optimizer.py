"""Tensors that backward gives gradients to, and that no optimizer holds or no module registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import StrayRow


@dataclass(frozen=True)
class OutsideLeaf:
    """One tensor. ``name`` is a parameter's (``Model.body.weight``) or the variable that holds it;
    empty if not found.

    ``made`` is the line that stores it, of a module's parameter the one that keeps the module in a
    list or dictionary of Python's (None where there is none, or unknown), ``backward`` the line
    that gave it a gradient first; ``fed`` counts the steps that did. ``changed`` is None where
    nobody looked; ``known`` means that the program asks for its gradient by name, or clears or
    changes it.
    """

    name: str
    made: Site | None
    backward: Site | None
    fed: int
    shape: tuple[int, ...] = ()
    registered: bool = False
    optimized: bool = False
    changed: bool | None = None
    known: bool = False
    grad_bytes: int = 0
    beside: int = 0
    """Parameters of modules that optimizers hold and that got gradients in the same steps."""


@dataclass(frozen=True)
class LeavesOutsideOptimizer(Table):
    """All such tensors of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("strays",)

    tensors: tuple[OutsideLeaf, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> LeavesOutsideOptimizer:
        """From the loud pass."""
        return cls(
            tuple(
                _stray(evidence, row)
                for row in rows_of(evidence, StrayRow)
                if row.pass_name == "loud"
            )
        )

    def forgotten_parameters(self, steps: int) -> Iterator[tuple[OutsideLeaf, ...]]:
        """Parameters of modules in no optimizer that got a gradient on ``steps`` and did not
        change, by the line that hides them, else by that of the backward.
        """
        left = [each for each in self._unchanged(steps) if each.registered]

        def by(each: OutsideLeaf) -> str:
            return str(each.made or each.backward)

        for _, together in groupby(sorted(left, key=by), key=by):
            yield tuple(together)

    def forgotten_tensors(self, steps: int) -> Iterator[OutsideLeaf]:
        """The same of tensors in no module, whose gradients nobody clears or asks for."""
        return (each for each in self._unchanged(steps) if not each.registered and not each.known)

    def unregistered(self, steps: int) -> Iterator[OutsideLeaf]:
        """Tensors that an optimizer trains beside parameters of modules, though they are in
        none.
        """
        return (
            each
            for each in self.tensors
            if each.optimized and not each.registered and each.beside and each.fed >= steps
        )

    def _unchanged(self, steps: int) -> Iterator[OutsideLeaf]:
        return (
            each
            for each in self.tensors
            if not each.optimized and each.changed is False and each.fed >= steps
        )


def _stray(evidence: Evidence, row: StrayRow) -> OutsideLeaf:
    file, line, at = row.file, row.line, row.at
    return OutsideLeaf(
        row.name,
        evidence.recording.site_at(file, line, row.function) if file and line else None,
        None if at is None else evidence.recording.site(at),
        row.fed,
        tuple(row.shape),
        row.registered,
        row.optimized,
        row.changed,
        bool(row.touched or row.asked),
        row.grad_bytes,
        row.beside,
    )
