"""CFG008: a part of the step runs in float64 by accident."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.files import Source, the_only
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity
from auditor.rule import Rule, knob

from .rows import DoubleBirthRow, DoubleParametersRow

WIDE = 8
"""Bytes of a number in float64."""

TURNS = ("set_default_dtype", "set_default_tensor_type", "double")
"""Calls that turn a program to float64."""


@dataclass(frozen=True)
class Float64InTheStep(Rule):
    """A part of the step runs in float64."""

    code = "CFG008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Make it float32 at its source: `dtype=torch.float32`, `.float()`, "
        "`array.astype(numpy.float32)` (NumPy arrays are float64 by default)."
    )

    narrowed_bytes: int = knob(
        65536, "Report a batch that is only narrowed if it has at least this many bytes per step."
    )
    share: float = knob(0.01, "Warn if at least this share of the forward's elements is float64.")

    def detect(
        self, births: Rows[DoubleBirthRow], parameters: Rows[DoubleParametersRow], source: Source
    ) -> Iterator[Finding]:
        trained = next((row.elements / row.all for row in parameters if row.all), 0.0)
        if trained > 0.5:
            if any(each.products for each in births):
                yield _whole(births, trained, source)
            return
        for birth in sorted(births, key=lambda each: -each.elements):
            if birth.how == "narrowed":
                yield from self._narrowed(birth)
            elif birth.graph:
                yield from self._begins(birth)

    def _narrowed(self, birth: DoubleBirthRow) -> Iterator[Finding]:
        wide = birth.in_a_step(WIDE * birth.elements)
        if wide >= self.narrowed_bytes:
            yield Finding(
                birth.site,
                f"each step loads {amounts.size(wide)} of float64 and only casts it to a narrower "
                "dtype here: up to this line it takes twice the memory, and copies move twice the bytes",
                steps=birth.steps,
                per_step=birth.in_a_step(birth.n),
                severity=Severity.NOTE,
            )

    def _begins(self, birth: DoubleBirthRow) -> Iterator[Finding]:
        """A conversion that the line asks for is a note, unless matrices are multiplied in it."""
        large = birth.share >= self.share or birth.products > 0
        asked = birth.how == "cast"
        if asked and not large:
            return
        calls = amounts.count(round(birth.in_a_step(birth.n)), "operator")
        products = amounts.count(round(birth.in_a_step(birth.products)), "product")
        yield Finding(
            birth.site,
            f"float64 starts here, in `{birth.op}`: it makes the results of {calls} per step float64"
            + (f", {products} of matrices among them" if birth.products else ""),
            steps=birth.steps,
            per_step=birth.in_a_step(birth.n),
            severity=Severity.NOTE if not large or (asked and not birth.products) else None,
            facts=(
                ("share of the forward's elements", f"{amounts.percent(birth.share)}"),
                ("largest tensor in float64", amounts.count(birth.largest, "element")),
            ),
        )


def _whole(births: Rows[DoubleBirthRow], trained: float, source: Source) -> Finding:
    steps = max(1, *(each.steps for each in births))
    return Finding(
        the_only(site for name in TURNS if (site := source.only_call(name)) is not None),
        f"the whole step runs in float64, including {amounts.percent(trained)} of the trained "
        "parameters",
        steps=steps,
        per_step=sum(each.n for each in births) / steps,
        severity=Severity.NOTE,
    )
