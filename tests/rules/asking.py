"""Asking a rule as the engine does: tables by their types, those that a test does not care about
empty.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from auditor.evidence.recorded.copies import Copy, What
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.machine import Device
from auditor.evidence.recorded.reads import Act, Expression, Read, ReadStatement
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.table import Rows
from auditor.model import Finding, Site
from auditor.recordings.row import LineRow, PassRow
from auditor.recordings.schema.graph import GraphRow
from auditor.recordings.schema.numerics import AmpRow, ModeRow, NumericRow
from auditor.recordings.schema.sync import CopyRow, ReadRow
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
            return (well_said(sound(each, rule.code)) for each in method(**asked))
    raise AssertionError(f"{type(rule).__name__} asks for no {sorted(map(str, given))}")


ODD = re.compile(
    r"(?<![\d.,])(1 (more )?(calls|copies|elements|layers|lines|parameters|ranks|steps|tensors)"
    r"|0 more|-\d+ more)\b|\bNone\b"
)
"""What no message says."""


def sound(finding: Finding, code: str) -> Finding:
    """The finding of a rule, whose words, counts, parts and price agree."""
    lost_us, low = finding.lost_us_per_step, finding.lost_us_per_step_low
    priced = lost_us is not None or finding.lost_bytes is not None
    assert priced == (finding.basis != "none") or code in ("MEM006", "MEM015")
    assert finding.steps >= 0 and finding.per_step >= 0.0
    assert (lost_us or 0.0) >= 0.0 and finding.lost_bytes != 0
    assert low is None or low <= (lost_us or 0.0) <= (finding.lost_us_per_step_high or 0.0)
    assert all(each.text or not each.site.text for each in finding.places)
    assert all(label and text for label, text in finding.facts)
    return finding


def well_said(finding: Finding) -> Finding:
    """The finding, with its numbers and its words in agreement."""
    assert not ODD.search(finding.message), finding.message
    return finding


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
    """A table of lines that were watched on ``of`` steps, of 1 ms unless told otherwise."""
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


def read(
    site: Site, step: int = 0, act: Act = "scalar", expression: Expression | None = None, **row: Any
) -> Read:
    """A read of a value at a line."""
    made = placed(ReadRow(at=0, step=step, **{"kind": "item", **row}), site)
    return Read(made, act, expression or Expression())


def place(*each: Read, of: int = 12, device: Device = "cuda", **more: Any) -> ReadStatement:
    """A line with these reads."""
    rows = tuple(one.row for one in each)
    act = each[0].act
    return ReadStatement(each[0].site, rows, of, act=act, reads=each, device=device, **more)


def copied(site: Site, what: What = "tensor", step: int = 0, **more: Any) -> Copy:
    """A copy to the device at a line."""
    told = {name: more.pop(name) for name in ("via", "call", "span", "written") if name in more}
    facts = {"bytes": 0, "blocking": True, "rewritten": False, **more}
    return Copy(placed(CopyRow(at=0, step=step, **facts), site), what, **told)


def happened(what: str, site: Site, step: int = 0, dtype: str = "", n: int = 1) -> AmpRow:
    """Something of mixed precision at a line."""
    return placed(AmpRow(at=0, what=what, step=step, dtype=dtype, n=n), site)


def rescaled(site: Site, step: int, before: float, after: float) -> AmpRow:
    """A call of ``GradScaler.update``."""
    return placed(AmpRow(at=0, what="update", step=step, before=before, after=after), site)


def holding(step: int = 0, tensors: int = 1, **more: Any) -> GraphRow:
    """What a root held at the end of a step."""
    return GraphRow(root="r", step=step, tensors=tensors, **{"read_back": False, **more})


def anomaly(step: int, site: Site | None = None, via: str = "") -> ModeRow:
    """A backward under anomaly mode, which a line switched on."""
    row = ModeRow(what="anomaly", at=None if site is None else 0, step=step, n=1)
    places: Any = SimpleNamespace(site=lambda number: site, via=lambda number: via)
    return row.read_from(places)


def delicate(site: Site, what: str, op: str, dtype: str, **more: Any) -> NumericRow:
    """Calls of a delicate operator at a line; ``library`` made them."""
    low, high, via = (more.pop(name, None) for name in ("low", "high", "library"))
    facts = {"n": 1, "steps": 1, "into": [], "loss": False, **more}
    row = NumericRow(at=0, what=what, op=op, dtype=dtype, least=low, greatest=high, **facts)
    places: Any = SimpleNamespace(site=lambda number: site, via=lambda number: via or "")
    return row.read_from(places)
