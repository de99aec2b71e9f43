"""What a judgement asks the forecast for: prices of findings, and how they came about."""

from __future__ import annotations

from auditor.evidence.table import Evidence
from auditor.extensions.forecast import rehearsed, step_host, step_prices
from auditor.extensions.forecast.rehearsed import method
from auditor.model import Finding
from auditor.model.forecasts import Forecast

__all__ = ["method", "priced"]


def priced(
    evidence: Evidence, findings: tuple[Finding, ...], faults: list[str]
) -> tuple[Forecast | None, tuple[Finding, ...]]:
    """The forecast of a rehearsed step, with the host's time where that is known, and the findings
    with what follows from it for their prices.
    """
    forecast = step_host.beside(evidence, rehearsed.forecast(evidence, faults))
    return forecast, step_prices.priced(evidence, findings, forecast)
