"""Coefficients made by hand, so that tests do not hang on what a fit found."""

from __future__ import annotations

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.classes import ClassNumbers
from auditor.extensions.forecast.coefficients import ANY, SCHEMA, ClassFit, Coefficients, MatmulFit
from auditor.extensions.forecast.intervals import Spread
from auditor.extensions.forecast.matmul import MatmulNumbers

EXACT = ClassNumbers(1.0, 1.0, 1.0, 1e-3, 1.0)
"""A class that runs at the data sheet's rates, 1 us more a kernel."""
HALF_RATE = ClassNumbers(1.0, 0.5, 0.5, 1e-3, 1.0)


def made(
    spread: Spread = Spread(0.5, 1.5),
    error: float = 0.1,
    only: tuple[str, ...] = kinds.MODELLED,
    unaligned: float = 1.0,
    groups: int = 5,
) -> Coefficients:
    product = MatmulFit(MatmulNumbers(2.0, 0.8, 0.8, 64.0, 1.0, 0.25), 1000, 0.1)
    classes = {kind: {"nvidia": ClassFit(EXACT, 100, groups, 0.2, error)} for kind in only}
    return Coefficients(
        SCHEMA,
        (),
        {"16-bit": {"H100": product, ANY: product}, "fp32": {ANY: product}},
        classes,
        {"nvidia": 1.0, "hopper": unaligned, "amd": 1.0},
        spread,
    )
