"""A run that failed early and the second run of the steps before, read as one recording: which rows are whose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

RERUN = "rerun"
"""Folder of the second run's recording inside the first's, and what the first's manifest says of it."""

Row = dict[str, Any]


def taken_passes(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Names of the passes whose rows are read from the second run; empty where there was none."""
    told = manifest.get(RERUN)
    return frozenset(told["passes"]) if isinstance(told, dict) and "passes" in told else frozenset()


def joined(first: list[Row], second: list[Row], taken: frozenset[str]) -> list[Row]:
    """Rows of one part of both runs: each pass from the run that it is taken from, what belongs to no pass once."""
    kept = [row for row in first if row.get("pass") not in taken]
    loaders = {row.get("loader") for row in first if "pass" not in row}  # both runs number them in the order they are met
    new = [row for row in second if "pass" not in row and ("loader" not in row or row["loader"] not in loaders)]
    return [*kept, *new, *(row for row in second if row.get("pass") in taken)]


def site_numbers(rows: Iterable[Row]) -> dict[tuple[Any, ...], int]:
    """Numbers of places by all else that their rows hold, as a recording's writer knows them."""
    known = {}
    for row in rows:
        more = (value for name, value in row.items() if name not in ("id", "file", "line", "function"))
        known[(row["file"], row["line"], row["function"], *more)] = int(row["id"])
    return known
