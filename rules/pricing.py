"""What the rules about measured times have in common: a price stands between two numbers."""

from __future__ import annotations

from dataclasses import replace

from auditor.batch_means import Estimate
from auditor.model import Finding


def between(finding: Finding, price: Estimate | None) -> Finding:
    """The finding with the interval of its price in us per step; as it is where too little was seen
    for one.
    """
    if price is None:
        return finding
    return replace(finding, lost_us_per_step_low=price.low, lost_us_per_step_high=price.high)
