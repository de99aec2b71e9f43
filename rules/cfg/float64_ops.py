"""Where float64 came into the forward, and how much of it ran in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import DoubleBirthRow, DoubleParametersRow


@dataclass(frozen=True)
class Double:
    """One line that brought float64 in, with what was computed from it in float64 on ``steps``
    watched steps.

    ``how``: ``cast`` (asked for), ``mixed`` (promoted: a float64 tensor met a narrower one),
    ``made`` (by a factory), ``given`` (a float64 tensor from outside was used), ``narrowed`` (one
    from outside was cast to a narrower dtype, and nothing else was made of it). ``calls`` operators
    went through ``elements`` float64 elements, ``largest`` at once; ``products`` of the calls were
    products of matrices or convolutions. ``share`` is that of all floating-point elements that the
    forward's operators went through. ``graph`` is true if a gradient flows back through it.
    """

    site: Site
    how: str
    op: str
    calls: int = 1
    elements: int = 1
    largest: int = 1
    products: int = 0
    share: float = 0.0
    graph: bool = True
    steps: int = 1


@dataclass(frozen=True)
class Float64Ops(Table):
    """Of the pass ``numbers``. ``trained`` is the share of the optimizers' parameters that is
    float64, by elements.
    """

    parts: ClassVar[tuple[str, ...]] = ("doubles",)

    births: tuple[Double, ...] = ()
    trained: float = 0.0

    @classmethod
    def build(cls, evidence: Evidence) -> Float64Ops:
        """From what the pass left."""
        rows = rows_of(evidence, DoubleParametersRow)
        trained = next((row.elements / row.all for row in rows if row.all), 0.0)
        return cls(
            tuple(_double(evidence, row) for row in rows_of(evidence, DoubleBirthRow)), trained
        )


def _double(evidence: Evidence, row: DoubleBirthRow) -> Double:
    return Double(
        site=evidence.recording.site(row.at),
        how=row.how,
        op=row.op,
        calls=row.n,
        elements=row.elements,
        largest=row.largest,
        products=row.products,
        share=row.elements / max(1, row.all),
        graph=row.graph,
        steps=max(1, row.steps),
    )
