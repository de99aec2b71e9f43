"""report.html: one file that works offline. Words, findings and SVG charts are plain HTML; plotly is
in it only where that was asked for, and wakes when a chart is looked at.
"""

import base64
import functools
import gzip
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from auditor import amounts
from auditor.model import Finding, Report, Severity
from auditor.model.charts import drawn
from auditor.model.prices import trains_otherwise

from . import (
    charts,
    communication,
    compilation,
    device,
    headline,
    modules,
    next_steps,
    outcomes,
    page,
    ranks,
    sections,
    summary,
    text,
    verified,
    what_ifs,
)
from .page import Card

# -- the list of findings --------------------------------------------------------------------------

FEW = 5
"""Findings that a figure links to one by one."""


@dataclass(frozen=True)
class FindingRow:
    """A finding in the list. ``behind`` says why it stands below another; empty if it does not."""

    card: Card
    behind: str
    family: str
    file: str


@dataclass(frozen=True)
class Choices:
    """What the rows can be filtered by: values and names, empty if there is no choice."""

    severities: tuple[tuple[str, str], ...]
    families: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    patched: bool


@dataclass(frozen=True)
class Link:
    """A finding that a figure is made of."""

    anchor: str
    code: str


def groups(cards: Sequence[Card]) -> tuple[tuple[FindingRow, ...], ...]:
    """Findings of one cause or one statement together, in the order of the costliest of each."""
    heads: list[list[FindingRow]] = []
    for card in cards:
        behind, head = _head(card, heads)
        row = FindingRow(card, behind, summary.family_of(card.finding.code), _file(card.finding))
        if head is None:
            heads.append([row])
        else:
            head.append(row)
    return tuple(map(tuple, heads))


def _head(card: Card, heads: list[list[FindingRow]]) -> tuple[str, list[FindingRow] | None]:
    follows = card.finding.follows
    for head in heads if follows else ():
        if follows in head[0].card.finding.codes:
            return f"follows from {text.one_line(follows, 20)}", head
    for head in heads if card.place else ():
        if head[0].card.place == card.place:
            return "the same line", head
    return "", None


def _file(finding: Finding) -> str:
    return text.path(finding.site.file) if finding.site is not None else ""


def choices(rows: Iterable[tuple[FindingRow, ...]]) -> Choices:
    """Of all rows, each value once, and only where there are two or more."""
    listed = [row for group in rows for row in group]
    levels = {row.card.severity for row in listed}
    patched = {bool(row.card.fix and row.card.fix.diff) for row in listed}
    return Choices(
        _several((level.value, level.value) for level in Severity if level.value in levels),
        _several(
            (row.family, f"{row.family} {summary.FAMILIES.get(row.family, '')}".strip())
            for row in listed
        ),
        _several((row.file, row.file or "no single place") for row in listed),
        len(patched) > 1,
    )


def _several(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found = tuple(dict.fromkeys(pairs))
    return found if len(found) > 1 else ()


def order(cards: Sequence[Card]) -> str:
    """In what order they stand, in words; empty for one."""
    if len(cards) < 2:
        return ""
    first = cards[0].finding
    lost = not first.proven_us and not first.lost_bytes and first.severity == Severity.ERROR
    opens = ["errors that cost the whole run"] if lost else []
    if any(trains_otherwise(card.finding) for card in cards):
        opens.append("findings that change what is trained")
    words = " and ".join(opens)
    opening = (
        f"{words[:1].upper()}{words[1:]} come first. The rest is sorted" if opens else "Sorted"
    )
    return (
        f"{opening} by what a fix saves, as a share of the step's time or of memory; findings without "
        "a price come last. Consequences of a finding, and findings on its line, are indented below it."
    )


def links(report: Report, found: Iterable[Finding]) -> tuple[Link, ...]:
    """The findings of a figure, for its links."""
    anchors = {id(each): f"finding-{place}" for place, each in enumerate(report.findings, 1)}
    return tuple(
        Link(anchors[id(each)], text.one_line(each.code, 20))
        for each in found
        if id(each) in anchors
    )


# -- the page --------------------------------------------------------------------------------------

_ASSETS = Path(__file__).parent / "assets"
_VALUE_LIMIT = 20_000
"""Characters of any one value that reach the page."""
_NO_PLOTLY = (
    "interactive-figures was requested, but plotly was not installed where this page was written: "
    "pip install 'torch-step-audit[all]'."
)
_PACKING = 3
"""Level of gzip: 9 would save 0.2 MB and take 0.1 s more of every audit. isal's highest."""
_PATH = re.compile(r"[MLHVhvz\d .-]+")
_TRAINING_LISTED = 8


class Html:
    """``report.html``. The plotly bundle is inside once, if asked for and there is a plot."""

    name = "html"
    suffix = ".html"

    def render(self, report: Report) -> str:
        """The whole page; every character of it can be encoded as UTF-8."""
        return _environment().get_template("report.html.j2").render(_context(report))


def _context(report: Report) -> dict[str, Any]:
    """Names that the templates use beside the modules of :func:`_environment`."""
    faults: list[str] = []
    by_step = drawn(
        "step times and memory by step", lambda: _with_data(charts.charts(report.series)), faults
    )
    made_of = drawn("what the steps are made of", lambda: _with_data(_parts(report)), faults)
    memory = drawn("memory over time", lambda: _with_data(charts.pictures(report.layers)), faults)
    filled = (*made_of, *memory)
    shown = (
        *(
            page.Shown(chart.id, f"{chart.title} by step", frozenset(chart.codes))
            for chart, _ in by_step
        ),
        *(_shown(picture) for picture, _ in filled),
    )
    report = replace(report, warnings=(*report.warnings, *faults))
    return {
        "report": report,
        "run": report.run,
        "sections": [each for each in sections.SECTIONS if each.there(report)],
        "subject": f"Audit of {text.one_line(report.run.target, 200)}",
        **_listed(report, shown),
        "anchors": _anchors(report),
        "explained": page.explained(report),
        "charts": [chart for chart, _ in by_step],
        "pictures": [picture for picture, _ in filled],
        **_drawing([data for _, data in (*by_step, *filled)], plotly=report.interactive_figures),
    }


def _drawing(drawings: list[Any], *, plotly: bool) -> dict[str, Any]:
    """Style, scripts and what they draw; ``plotly`` is in the page where that is asked for."""
    plotted = bool(drawings) and plotly and importlib.util.find_spec("plotly") is not None
    script = _asset("report.js") + _asset("filter.js") + (_asset("figures.js") if drawings else "")
    script += _asset("plots.js") if plotted else ""
    return {
        "zoomless": _NO_PLOTLY if drawings and plotly and not plotted else "",
        "data": Markup(_script_json({"charts": drawings}))  # noqa: S704 - escaped by _script_json
        if drawings
        else "",
        "style": Markup(_asset("report.css")),  # noqa: S704 - our own file
        "script": Markup(script),  # noqa: S704 - our own file
        "plotly": _plotly_packed() if plotted else "",
        "policy": _policy(script, with_plotly=plotted),
    }


def _listed(report: Report, shown: Sequence[page.Shown]) -> dict[str, Any]:
    """The findings, and how they are listed."""
    cards = page.cards(report, shown)
    listed = groups(cards)
    return {
        "cards": cards,
        "training": tuple(card for card in cards if trains_otherwise(card.finding)),
        "listed": _TRAINING_LISTED,
        "groups": listed,
        "choices": choices(listed),
        "finding_order": order(cards),
        "few": FEW,
        "linked": functools.partial(links, report),
    }


def _with_data(drawings: Iterable[Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple((drawing, drawing.data()) for drawing in drawings)


def _shown(picture: charts.Picture) -> page.Shown:
    return page.Shown(picture.id, picture.title, frozenset(picture.codes), device=picture.of_memory)


def _parts(report: Report) -> Iterator[charts.Picture]:
    drawn = None if report.parts is None else charts.picture(report.parts)
    if drawn is not None:
        yield drawn


def _policy(script: str, *, with_plotly: bool) -> str:
    """Content security policy: nothing is fetched, and only the two scripts that we know by hash
    may run.

    Styles may be inline because plotly sets them so; no text of the user can become one.
    """
    hashes = [_sha256(script)] + ([_plotly_hash()] if with_plotly else [])
    sources = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {sources}; style-src 'unsafe-inline'; img-src data: "
        "blob:; base-uri 'none'; form-action 'none'"
    )


def _script_json(value: Any) -> str:
    """``value`` as JSON for a script element: no ``<``, ``>``, ``&``, and ASCII only."""
    dumped = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for char in "<>&":
        dumped = dumped.replace(char, f"\\u{ord(char):04x}")
    return dumped


def _anchors(report: Report) -> dict[str, str]:
    """Id of the first finding of each code."""
    first: dict[str, str] = {}
    for number, finding in enumerate(report.findings, 1):
        for code in finding.codes:
            first.setdefault(code, f"finding-{number}")
    return first


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "duration": lambda us: text.micro(amounts.duration(us)),
        "micro": text.micro,
        "size": amounts.size,
        "digits": amounts.digits,
        "operations": amounts.operations,
        "percent": amounts.percent,
        "moment": amounts.moment,
        "pass_named": amounts.pass_named,
        "path": text.path,
        "line": text.one_line,
        "breakable": page.breakable,
        "brief": page.brief,
        "tail": text.tail_lines,
        "title_of": page.title,
        "prose": page.prose,
        "path_data": _path_data,
    }
    environment.globals |= {
        "count": amounts.count,
        "communication": communication,
        "compilation": compilation,
        "device": device,
        "headline": headline,
        "modules": modules,
        "next_steps": next_steps,
        "outcomes": outcomes,
        "page": page,
        "ranks": ranks,
        "summary": summary,
        "verified": verified,
        "what_ifs": what_ifs,
    }
    return environment


def _finalize(value: Any) -> Any:
    """Texts of a template are made visible and bounded here; escaping comes after it."""
    return text.shorten(text.visible(value), _VALUE_LIMIT) if type(value) is str else value


def _path_data(path: str) -> Markup:
    """SVG path data as it is, however long; it can hold nothing but commands and numbers."""
    return Markup("".join(_PATH.findall(path)))  # noqa: S704 - letters of commands, digits and spaces only


@functools.cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _plotly() -> str:
    """The installed package's bundle; only a page with charts imports it."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


@functools.cache
def _plotly_packed() -> Markup:
    """The bundle as base64 of gzip: 2.2 MB instead of 4.8."""
    return Markup(base64.b64encode(_gzip(_plotly().encode())).decode("ascii"))  # noqa: S704 - base64


def _gzip(script: bytes) -> bytes:
    """By isal where it has a wheel: four times cheaper than the standard library, as small."""
    try:
        from isal import igzip
    except ImportError:
        return gzip.compress(script, compresslevel=_PACKING, mtime=0)
    return bytes(igzip.compress(script, _PACKING, mtime=0))


@functools.cache
def _plotly_hash() -> str:
    return _sha256(_plotly())


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
