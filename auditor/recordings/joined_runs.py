"""A run that failed early and the second run of the steps before, read as one recording: which rows
are whose.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from auditor.recordings.row import PassRow
from auditor.recordings.row import Row as TypedRow
from auditor.recordings.schema.data import LoaderRow
from auditor.recordings.schema.run import SiteRow

RERUN = "rerun"
"""Folder of the second run's recording inside the first's, and what the first's manifest says of
it.
"""

SPAN = ("opcode", "first_line", "end_line", "col", "end_col", "via")
"""What else is known of a place than file, line and function."""

Row = dict[str, Any]


def taken_passes(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Names of the passes whose rows are read from the second run; empty where there was none."""
    told = manifest.get(RERUN)
    return frozenset(told["passes"]) if isinstance(told, dict) and "passes" in told else frozenset()


def joined(first: list[Row], second: list[Row], taken: frozenset[str]) -> list[Row]:
    """Rows of one part of both runs: each pass from the run that it is taken from, what belongs to
    no pass once.
    """
    kept = [row for row in first if row.get("pass") not in taken]
    # both runs number them in the order they are met
    loaders = {row.get("loader") for row in first if "pass" not in row}
    new = [
        row
        for row in second
        if "pass" not in row and ("loader" not in row or row["loader"] not in loaders)
    ]
    return [*kept, *new, *(row for row in second if row.get("pass") in taken)]


def joined_rows(
    first: list[TypedRow], second: list[TypedRow], taken: frozenset[str]
) -> list[TypedRow]:
    """As :func:`joined`, of typed rows."""
    kept = [row for row in first if _pass_of(row) not in taken]
    loaders = {number for row in first if (number := _loader_of(row)) is not None}
    new = [row for row in second if _pass_of(row) is None and _loader_of(row) not in loaders]
    return [*kept, *new, *(row for row in second if _pass_of(row) in taken)]


def _pass_of(row: TypedRow) -> str | None:
    return row.pass_name if isinstance(row, PassRow) else None


def _loader_of(row: TypedRow) -> int | None:
    return row.loader if isinstance(row, LoaderRow) else None


def site_numbers(rows: Iterable[SiteRow]) -> dict[tuple[Any, ...], int]:
    """Numbers of places by all else that their rows hold, as a recording's writer knows them."""
    return {
        (row.file, row.line, row.function, *(getattr(row, name) for name in SPAN)): row.id
        for row in rows
    }
