"""What a report says of the baseline that it was compared with."""

from __future__ import annotations

from collections.abc import Iterator

from auditor import amounts
from auditor.model import Accepted, Finding, Report

from . import text

NAMED = 5
"""Findings that are gone and are named one by one."""

WORDS = {"new": "new", "unchanged": "known"}
"""The states of a finding, as people read them."""


def word(finding: Finding) -> str:
    """``new`` or ``known``; empty where there was none."""
    return WORDS[finding.baseline_state] if finding.baseline_state else ""


def accepted(finding: Finding) -> bool:
    """Whether it is in the baseline."""
    return finding.baseline_state == "unchanged"


def sentences(report: Report) -> tuple[str, ...]:
    """How many findings are new, which of the baseline are gone, and which could not be looked
    for; none without a baseline.
    """
    return tuple(_sentences(report))


def _sentences(report: Report) -> Iterator[str]:
    known = report.baseline
    if known is None:
        return
    new = amounts.count(known.new, "new finding")
    yield f"baseline {text.path(known.file)}: {new}, {known.unchanged:,} known"
    if known.gone:
        are = "is" if len(known.gone) == 1 else "are"
        yield (
            f"{amounts.count(len(known.gone), 'finding')} of the baseline {are} gone "
            f"({_named(known.gone)}): --update-baseline"
        )
    if known.unlooked:
        yield (
            f"nothing is known of {amounts.count(known.unlooked, 'finding')} of the baseline: "
            "their rules were not checked this time"
        )


def _named(gone: tuple[Accepted, ...]) -> str:
    shown = [text.path(f"{each.code} {each.file}".strip()) for each in gone[:NAMED]]
    more = f" and {len(gone) - NAMED:,} more" if len(gone) > NAMED else ""
    return ", ".join(shown) + more
