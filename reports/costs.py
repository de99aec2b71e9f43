"""A finding's price as pages say it: with its interval and its basis, and that it is not proven
where the interval reaches zero.
"""

from __future__ import annotations

from auditor import amounts
from auditor.model import Finding
from auditor.model.prices import priced

from .summary import cost

NOT_PROVEN = "not proven"


def basis(finding: Finding) -> str:
    """How the price was come by, ``measured`` or ``estimated``; ``not proven`` where its interval
    reaches zero.
    """
    return (
        NOT_PROVEN if priced(finding) is not None and finding.proven_us is None else finding.basis
    )


def short(finding: Finding, micro: str = "us") -> str:
    """:func:`cost` where there is room for one number: ``not proven`` in the place of a price whose
    interval reaches zero.
    """
    return NOT_PROVEN if basis(finding) == NOT_PROVEN else cost(finding, micro)


def between(finding: Finding, micro: str = "us") -> str:
    """``between 8.9 ms and 9.4 ms``: where the price lies; empty where that is not known."""
    low, high = finding.lost_us_per_step_low, finding.lost_us_per_step_high
    if priced(finding) is None or low is None or high is None:
        return ""
    return f"between {amounts.duration(low, micro)} and {amounts.duration(high, micro)}"


def price(finding: Finding) -> str:
    """:func:`cost` with its interval and its basis: ``9.17 ms [8.9 to 9.4] / step measured``; empty
    where neither is known.
    """
    lost = priced(finding)
    if lost is None:
        return f"{said} {finding.basis}" if (said := cost(finding)) else ""
    spanned = amounts.within(lost, finding.lost_us_per_step_low, finding.lost_us_per_step_high)
    return f"{spanned} / step {basis(finding)}"
