"""Gaps that the trace view can show: stretches between slices, as time stamps of the trace."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from auditor.judging import catalogue
from auditor.model import Finding, Report
from auditor.model.charts import Lanes

from . import slices

Stretch = list[float]
"""Time stamp of its begin and its length, in us."""


def of(report: Report, finding: Finding) -> list[Stretch]:
    """Where a finding shows in the step that the report draws, if no slices are its own."""
    if slices.pattern(finding.code):
        return []
    return [
        [origin + pointer.start, pointer.length]
        for origin, chart in _timelines(report)
        for pointer in chart.pointers
        if pointer.key == finding.key and _is_place(pointer.start, pointer.length)
    ]


def dearest(report: Report) -> dict[str, Any] | None:
    """The gap that the report marks in its step: what is said of it, and where it is. None where
    it marks none.
    """
    for origin, chart in _timelines(report):
        told = catalogue.reports("lanes").dearest(chart, {})
        if told is not None and chart.gap is not None:
            return {"said": told.said, "at": [origin + chart.gap.start, chart.gap.length]}
    return None


def _timelines(report: Report) -> Iterator[tuple[float, Lanes]]:
    """The drawn steps whose place in the trace is known."""
    for chart in report.lanes:
        if chart.kind == "timeline" and chart.origin is not None and math.isfinite(chart.origin):
            yield chart.origin, chart


def _is_place(start: float, length: float) -> bool:
    return math.isfinite(start + length) and start >= 0 and length > 0
