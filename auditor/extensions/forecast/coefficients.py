"""The fitted numbers (``coefficients.json``), written by ``benchmarks/forecast_fit.py``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec

from auditor.errors import AuditProblem
from auditor.extensions.forecast.classes import ClassNumbers
from auditor.extensions.forecast.counted import FP32, HALF
from auditor.extensions.forecast.intervals import Spread
from auditor.extensions.forecast.kinds import POINTWISE
from auditor.extensions.forecast.matmul import MatmulNumbers
from auditor.typed_reading import convert

PATH = Path(__file__).with_name("coefficients.json")
MOST_ERROR, LEAST_GROUPS = 0.5, 2
"""Error of a class's time above which, and groups that judged it below which, it does not count as
fitted.
"""
SCHEMA = "audit-forecast/1"
ANY = "any"
"""The key of numbers that were fitted on several GPUs together, for those that were not fitted."""


@dataclass(frozen=True)
class Source:
    """Where measurements came from."""

    name: str
    licence: str
    notice: str
    """Whose copyright, as the source states it."""
    commit: str
    what: str


@dataclass(frozen=True)
class MatmulFit:
    """Six numbers, and how far off they are."""

    numbers: MatmulNumbers
    shapes: int
    """Shapes that were measured."""
    mdape: float
    """Median of the absolute error on shapes that the fit had not seen."""
    left_out_mdape: float | None = None
    """The same with this GPU left out of the fit, from the numbers of the others."""


@dataclass(frozen=True)
class ClassFit:
    """Five numbers, and how far off they are on groups that were left out."""

    numbers: ClassNumbers
    calls: int
    groups: int
    mdape: float
    """Median of the absolute error of a call; each group left out once."""
    error: float
    """Median over groups of the absolute error of the class's time in all; each group left out."""
    borrowed: bool = False
    """Whether too few groups have the class: then the numbers are those of a class like it, and the
    errors say how well they serve.
    """


@dataclass(frozen=True)
class Coefficients:
    """The file."""

    schema: str
    sources: tuple[Source, ...]
    matmul: dict[str, dict[str, MatmulFit]]
    """By arithmetic, then by GPU or :data:`ANY`."""
    classes: dict[str, dict[str, ClassFit]]
    """By class, then by vendor."""
    unaligned: dict[str, float]
    """By generation: how much longer 16-bit products take whose rows do not end at 16 bytes."""
    spread: Spread
    """Of a step's busy time."""
    groups: dict[str, float] = field(default_factory=dict)
    """Measured over predicted busy time of each group of recordings, left out of its own fit."""


def read(path: Path = PATH) -> Coefficients:
    """The file, checked; AuditProblem says what is wrong with it."""
    try:
        found = convert(msgspec.json.decode(path.read_bytes()), Coefficients)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError) as error:
        raise AuditProblem(
            f"{path} cannot be read: {error}", "install the package again"
        ) from error
    problems = _problems(found)
    if problems:
        raise AuditProblem(f"{path}: {problems[0]}", "install the package again")
    return found


@cache
def coefficients() -> Coefficients:
    """The file that is shipped."""
    return read()


def _problems(found: Coefficients) -> list[str]:
    said = []
    if found.schema != SCHEMA:
        said.append(f"its schema is {found.schema!r}, not {SCHEMA!r}")
    said.extend(
        f"products in {arithmetic} have no numbers for {ANY!r}"
        for arithmetic, fits in found.matmul.items()
        if ANY not in fits
    )
    said.extend(
        f"products in {arithmetic} have no numbers"
        for arithmetic in (HALF, FP32)
        if arithmetic not in found.matmul
    )
    if not found.classes.get(POINTWISE):
        said.append(f"there are no numbers for {POINTWISE}, which stand in for classes without any")
    efficiencies = [
        (f"products in {arithmetic} on {gpu}", fit.numbers)
        for arithmetic, fits in found.matmul.items()
        for gpu, fit in fits.items()
    ] + [
        (f"{kind} on {vendor}", fit.numbers)
        for kind, fits in found.classes.items()
        for vendor, fit in fits.items()
    ]
    said.extend(
        f"{where} would be faster than the data sheet, or take no time"
        for where, numbers in efficiencies
        if not (0 < numbers.compute <= 1 and 0 < numbers.memory <= 1 and numbers.floor_us > 0)
    )
    if not 0 < found.spread.lower <= 1 <= found.spread.upper:
        said.append("its interval does not hold its own prediction")
    return said
