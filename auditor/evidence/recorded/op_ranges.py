"""Delicate operators as they ran: the dtype they really had, what they were given, what came
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.numerics import NumericRow

SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149, "float64": 2.0**-1074}
"""Smallest positive number of a dtype, subnormal ones included (IEEE 754; bfloat16 has the exponent
of float32).
"""

LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895e38,
    "float32": 3.4028235e38,
    "float64": 1.7976931e308,
}
"""Largest finite number of a dtype."""


@dataclass(frozen=True)
class Delicate:
    """One kind of call at one line, in ``n`` calls over ``steps`` watched steps.

    ``what``: ``epsilon`` (a tiny number was added, or is the lower bound), ``function`` (a
    logarithm, an exponential, a loss), ``output`` (what an operator with a gradient gave in
    float16), ``loss`` (a backward began at it) or ``gradient`` (its derivative is infinite at a value that it was given, a finite
    gradient became non-finite there and reached a parameter; on ``steps`` steps; ``unasked`` if
    only where the gradient that came in was 0; ``scalar`` is the exponent of a power). ``low`` and
    ``high`` is the range of its input (of an ``output``: of that); None for empty tensors. ``feed``
    is what made its input: ``sigmoid``, ``softmax``, ``exp``, ``sum of exp``; ``guarded`` if an
    epsilon came in between. ``into`` are the operators that an epsilon's result went to. ``loss``
    is true if a backward began at what was made of it, with no product of matrices in between.
    ``library`` is the file and function of a library below the line. ``overflowed`` counts calls
    (of an ``output``) that gave an infinity of finite values, and losses that were not finite.
    """

    site: Site
    what: str
    op: str
    dtype: str
    n: int = 1
    steps: int = 1
    low: float | None = None
    high: float | None = None
    scalar: float = 0.0
    feed: str = ""
    guarded: bool = False
    into: tuple[str, ...] = ()
    loss: bool = False
    library: str = ""
    unasked: bool = False
    overflowed: int = 0

    @property
    def half(self) -> bool:
        """True in float16 or bfloat16."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def vanishes(self) -> bool:
        """True if the epsilon rounds to zero: half of the smallest number does, to even."""
        return self.scalar <= SMALLEST.get(self.dtype, 0.0) / 2

    @property
    def in_optimizer(self) -> bool:
        """True if torch's optimizer code made the call."""
        return self.library.startswith("torch/optim/")

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        known = self.low is not None and self.high is not None
        given = f"{self.low:.4g} to {self.high:.4g}" if known else "unknown"
        made = "of the result" if self.what == "output" else "of the input"
        rows = [
            ("operator", self.op),
            ("dtype that ran", self.dtype),
            (f"range {made}", given),
            ("input made by", self.feed),
        ]
        return *((label, text) for label, text in rows if text), (
            "inside",
            self.library or "the line itself",
        )


@dataclass(frozen=True)
class OpRanges(Table):
    """All of the pass ``numbers``; ``steps`` are those that it watched."""

    parts: ClassVar[tuple[str, ...]] = ("numerics",)
    of_values: ClassVar[bool] = True

    steps: int = 0
    calls: tuple[Delicate, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> OpRanges:
        """From the pass ``numbers``."""
        calls = tuple(_delicate(evidence, row) for row in rows_of(evidence, NumericRow))
        return cls(evidence.steps_of("numbers"), calls)

    def of(self, what: str) -> Iterator[Delicate]:
        """Calls of one kind."""
        return (each for each in self.calls if each.what == what)

    @property
    def loss_lost(self) -> int:
        """Backwards that began at a loss which was not finite, where all of two or more did."""
        losses = list(self.of("loss"))
        n = sum(each.n for each in losses)
        return n if n > 1 and n == sum(each.overflowed for each in losses) else 0

    def per_step(self, call: Delicate) -> float:
        """Calls in each watched step."""
        return call.n / max(1, self.steps)


def _delicate(evidence: Evidence, row: NumericRow) -> Delicate:
    place = evidence.recording.site_row(row.at)
    return Delicate(
        site=evidence.recording.site(row.at),
        what=row.what,
        op=row.op,
        dtype=row.dtype,
        n=row.n,
        steps=row.steps,
        low=_number(row.low),
        high=_number(row.high),
        scalar=row.scalar or 0.0,
        feed=row.feed or "",
        guarded=bool(row.guarded),
        into=tuple(row.into),
        loss=row.loss,
        library=place.via or "",
        unasked=bool(row.unasked),
        overflowed=row.overflowed or 0,
    )


def _number(written: float | str | None) -> float | None:
    return None if written is None else float(written)
