"""Asking a rule as the engine does: tables by their types, those that a test does not care about
empty.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.table import Rows
from auditor.model import Finding, Site
from auditor.recordings.row import LineRow, PassRow
from auditor.rule import Rule

R = TypeVar("R", bound=PassRow)


def ask(rule: Rule, *tables: Any) -> Iterator[Finding]:
    """By whichever of its methods asks for these tables."""
    given = {type(table): table for table in tables}
    for method in (rule.detect, rule.in_trace, rule.in_snapshot):  # type: ignore[attr-defined]
        if method is None:
            continue
        wanted = typing.get_type_hints(getattr(method, "__wrapped__", method))
        del wanted["return"]
        if given.keys() <= set(wanted.values()):
            asked = {name: given.get(hint) or hint() for name, hint in wanted.items()}
            found: Iterator[Finding] = method(**asked)
            return found
    raise AssertionError(f"{type(rule).__name__} asks for no {sorted(map(str, given))}")


def rows(*given: PassRow, sites: tuple[Site | None, ...] = ()) -> Rows[Any]:
    """Rows of one type as a rule reads them: numbers of sites count in ``sites``."""

    def site_at(file: str, line: int, function: str = "") -> Site:
        known = {(site.file, site.line): site for site in sites if site is not None}
        return known.get((file, line)) or Site(file, line, function)

    places: Any = SimpleNamespace(site=sites.__getitem__, site_at=site_at)
    return Rows[type(given[0])](row.read_from(places) for row in given)


def lines(
    *given: LineRow,
    sites: tuple[Site | None, ...] = (),
    of: int = 20,
    pass_name: str = "quiet",
    step_us: float = 0.0,
    kind: type[LineRow] | None = None,
) -> Lines[Any]:
    """The same of a table of lines that were watched on ``of`` steps, of 1 ms unless told
    otherwise.
    """
    table = Lines[kind or type(given[0])]
    placed_rows = rows(*given, sites=sites) if given else ()
    return table(placed_rows, of, pass_name, step_us or of * 1000.0)


def placed(row: R, site: Site) -> R:
    """A row of that line, of a table that has others, too."""
    (found,) = rows(row, sites=(site,))
    return cast("R", found)


def loud(number: int) -> Steps:
    """So many steps of the diagnostic pass."""
    return Steps(loud=tuple(Step(step, 1000.0) for step in range(number)))
