"""What CFG008 reads, made by hand."""

from typing import Any

from auditor.rules.cfg.rows import DoubleBirthRow, DoubleParametersRow

from auditor.evidence.table import Rows
from auditor.model import Site
from tests.rules.asking import rows

BIRTH = {"how": "cast", "op": "to", "n": 8, "elements": 10, "largest": 1, "products": 0}
BIRTH |= {"graph": True, "steps": 2, "all": 1000}


def doubles(
    *sites: Site, trained: float = 0.0, **more: Any
) -> tuple[Rows[DoubleBirthRow], Rows[DoubleParametersRow]]:
    """A birth at each of these lines, 1% of the forward unless ``more`` says otherwise, and the
    share of the trained parameters that is float64.
    """
    births = (DoubleBirthRow(at=at, **(BIRTH | more)) for at in range(len(sites)))
    parameters = DoubleParametersRow(elements=round(100 * trained), all=100)
    return rows(*births, sites=sites), rows(parameters)
