"""CFG008: a part of the step runs in float64 that nobody asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.files import Source, the_only
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .rows import DoubleBirthRow, DoubleParametersRow

CAME = {
    "cast": "is converted to float64 here",
    "mixed": "meets a float64 tensor here and becomes float64",
    "made": "is made in float64 here",
    "given": "comes in as float64 and is used here",
}

WIDE = 8
"""Bytes of a number in float64."""

DELIBERATE = 0.25
"""Share of the forward from which a conversion that the line asks for is a warning: below it may be
a loss that wants the digits.
"""

DEFAULTS = ("set_default_dtype", "set_default_tensor_type")
"""Calls that set the dtype of what is made without one."""

DIGITS = re.compile(
    r"create_graph|\b(LBFGS|hessian|jacobian|gradcheck|odeint|cholesky\w*|solve\w*|lstsq|eigh?|eigvals"
    r"|svd|inverse|inv|logdet|slogdet|matrix_exp|linalg|gpytorch|torchdiffeq|expm)\b"
)
"""Names in a program that trains in float64 for its digits: second derivatives, solvers."""


@dataclass(frozen=True)
class Float64InTheStep(Rule):
    """A part of the step runs in float64."""

    code = "CFG008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    narrowed_bytes: int = knob(
        65536,
        "Bytes of float64 per step from which a batch that is only cast to a narrower dtype is reported.",
    )
    share: float = knob(
        0.01,
        "Share of the forward's floating-point elements in float64 from which it is a warning.",
    )

    def detect(
        self, births: Rows[DoubleBirthRow], parameters: Rows[DoubleParametersRow], source: Source
    ) -> Iterator[Finding]:
        trained = next((row.elements / row.all for row in parameters if row.all), 0.0)
        if trained > 0.5:
            if any(each.products for each in births):
                yield _whole(births, trained, source)
            return
        yield from self._narrowed(births)
        for birth in sorted(births, key=lambda each: -each.elements):
            large = birth.share >= self.share or birth.products > 0
            if birth.how == "narrowed" or not birth.graph or (not large and birth.how == "cast"):
                continue
            yield _creeps(birth, large=large)

    def _narrowed(self, births: Rows[DoubleBirthRow]) -> Iterator[Finding]:
        for birth in births:
            wide = birth.in_a_step(WIDE * birth.elements)
            if birth.how != "narrowed" or wide < self.narrowed_bytes:
                continue
            yield Finding(
                birth.site,
                f"{amounts.size(wide)} of float64 come into each step and are only cast to a narrower "
                f"dtype here: up to this line they take twice the memory, also in copies",
                steps=birth.steps,
                per_step=birth.in_a_step(birth.n),
                severity=Severity.NOTE,
                remedy=Remedy(REMEDIES["given"]),
            )


REMEDIES = {
    "cast": "Leave the conversion out, or go back to float32 right "
    "behind what needs it: `.float()`.",
    "mixed": "Make the float64 tensor float32 where it is made: "
    "`dtype=torch.float32`, `torch.from_numpy(array).float()`, "
    "`array.astype(numpy.float32)`; in a module `register_buffer`, so that it follows the model.",
    "made": "Give it `dtype=torch.float32`; NumPy's arrays and numbers are float64 by default.",
    "given": "Make it float32 where it is made: in the dataset or the collate function for a batch "
    "(`torch.as_tensor(array, dtype=torch.float32)`), or `.float()` before the first use.",
    "whole": "Train in float32 unless the problem needs the digits: "
    "leave out what turns the model to float64.",
}


def _creeps(birth: DoubleBirthRow, *, large: bool) -> Finding:
    products = (
        f", {amounts.count(round(birth.in_a_step(birth.products)), 'product')} of matrices among them"
        if birth.products
        else ""
    )
    calls = amounts.count(round(birth.in_a_step(birth.n)), "operator")
    asked = birth.how == "cast" and not birth.products and birth.share < DELIBERATE
    return Finding(
        birth.site,
        f"a tensor {CAME[birth.how]}: the results of {calls} per step are float64 because of it"
        f"{products}",
        steps=birth.steps,
        per_step=birth.in_a_step(birth.n),
        severity=Severity.NOTE if asked or not large else None,
        facts=(
            ("operator", birth.op),
            ("share of the forward's elements", f"{amounts.percent(birth.share)}"),
            ("largest tensor in float64", amounts.count(birth.largest, "element")),
        ),
        remedy=Remedy(REMEDIES[birth.how]),
    )


def _whole(births: Rows[DoubleBirthRow], trained: float, source: Source) -> Finding:
    steps = max(1, *(each.steps for each in births))
    turned = _turned(source)
    by_default = turned is not None and bool(source.called(turned, *DEFAULTS))
    wanted = any(DIGITS.search(text) for text in source.texts.values())
    return Finding(
        turned,
        f"the whole step runs in float64, with {amounts.percent(trained)} of the trained "
        "parameters",
        steps=steps,
        per_step=sum(each.n for each in births) / steps,
        severity=None if by_default and not wanted else Severity.NOTE,
        remedy=Remedy(REMEDIES["whole"]),
    )


def _turned(source: Source) -> Site | None:
    """Where the program was turned to float64, if its source says so at one place with one of the
    usual calls.
    """
    return the_only(
        site for name in (*DEFAULTS, "double") if (site := source.only_call(name)) is not None
    )
