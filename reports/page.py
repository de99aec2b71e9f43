"""What the HTML page shows, made ready for the template: ids, cut source lines, marked diffs, words for enums."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from auditor import amounts
from auditor.model import Edit, Excerpt, Finding, Report

from . import costs, manual, summary, text
from .verified import Proof, proof, speed

_MESSAGE_LIMIT = 5000
_MANY = 18
"""Digits that no amount of memory has."""

LINE_LIMIT = 400
"""Characters of a source or diff line that are shown."""

OPENING_LINES = 8
"""Heads of functions and classes around an excerpt that are shown."""

DIFF_LINES = 400
"""Lines of one diff that are shown; fixes.patch has them all."""

# Not ";" or "&": they end and begin what escaping wrote.
_SEPARATOR = re.compile(r"([/.:_])(?=[^/.:_])")

_MICRO = re.compile(r"(?<=\d) us\b")

_SOURCES = {"trace": "the trace", "snapshot": "the snapshot"}
"""What a price was estimated from, where it was not a run of ours."""
_SEEN_ON = {
    "cpu": "seen on the CPU",
    "cuda": "seen on the GPU",
    "rehearsal": "seen in the rehearsal of the GPU path, which gives no times",
    "trace": "seen in the trace",
    "snapshot": "seen in the memory snapshot",
    "source": "read in the source",
}


@dataclass(frozen=True)
class CodeLine:
    """One line of an excerpt or a diff. ``kind`` is a class of the style sheet."""

    kind: Literal["plain", "marked", "opening", "add", "remove", "hunk", "file"]
    number: int | None
    text: str


@dataclass(frozen=True)
class Fix:
    """The remedy: words, the patch and what it promises."""

    text: str
    safe: bool
    diff: tuple[CodeLine, ...]
    refused: str
    promises: tuple[str, ...]
    config: str


@dataclass(frozen=True)
class Card:
    """One finding as the page shows it."""

    id: str
    finding: Finding
    severity: str
    title: str
    place: str
    price: str
    share: str
    basis: str
    between: str
    seen_on: str
    frequency: str
    excerpt: tuple[CodeLine, ...]
    fix: Fix | None
    proof: Proof | None
    page: Markup | None
    """The rule's manual page, on the first finding of its rule only."""
    shown_in: tuple[Shown, ...]
    """Charts in which it can be seen."""


@dataclass(frozen=True)
class Shown:
    """A chart that findings may link to: those of ``codes`` (rules or families), and those that it marks (``anchors``)."""

    id: str
    title: str
    codes: frozenset[str]
    anchors: frozenset[str] = frozenset()
    device: bool = False
    """Whether it shows a device's memory: what a CPU's memory finding is about cannot be seen there."""


def cards(report: Report, charts: Sequence[Shown] = ()) -> tuple[Card, ...]:
    """All findings in the report's order."""
    return tuple(_cards(report, charts))


@dataclass(frozen=True)
class Proposed:
    """A proposal of ``audit verify`` as the page shows it."""

    id: str
    title: str
    gain: str
    text: str
    curve: tuple[tuple[str, str], ...]
    diff: tuple[CodeLine, ...]
    proof: Proof


def proposals(report: Report) -> tuple[Proposed, ...]:
    """What searches by re-runs proposed."""
    made = report.verification.proposals if report.verification is not None else ()
    return tuple(
        Proposed(
            f"proposal-{number}",
            each.title,
            speed(each.verified),
            each.text,
            each.curve,
            tuple(_diff(each.diff)),
            proof(each.verified),
        )
        for number, each in enumerate(made, 1)
    )


def places(report: Report) -> dict[str, tuple[str, str]]:
    """Anchor and code of each finding by its key; the first where several have one key."""
    known: dict[str, tuple[str, str]] = {}
    for number, finding in enumerate(report.findings, 1):
        known.setdefault(finding.key, (f"finding-{number}", text.one_line(finding.code, 20)))
    return known


def title(name: str) -> str:
    """``scalar-read-every-step`` as ``Scalar read every step``."""
    words = name.replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def prose(words: str) -> Markup:
    """A rule's words: parts between backticks are code, and microseconds are spelt as on the rest of the page."""
    parts = text.shorten(words, _MESSAGE_LIMIT).split("`")
    if len(parts) % 2 == 0:  # one stands alone: it is no quotation mark
        return Markup("{}").format(words)
    marked = (_code(part) if place % 2 else Markup("{}").format(_MICRO.sub(" µs", part)) for place, part in enumerate(parts))
    return Markup("").join(marked)


def _code(part: str) -> Markup:
    return Markup("<code>{}</code>").format(part)


def environment(report: Report) -> Iterator[tuple[str, str]]:
    """Names and values of the environment as people read them: ``cpu_count`` without its underscore, memory with a unit."""
    for name, value in report.environment.items():
        shown = amounts.size(int(value)) if name == "host_memory" and value.isdecimal() and len(value) < _MANY else value
        yield (name.replace("_", " ") if name.islower() else name), shown


def breakable(name: str) -> Markup:
    """A path or dotted name that may wrap after its separators, and is copied without a trace of that."""
    return Markup(_SEPARATOR.sub(r"\1<wbr>", str(Markup.escape(text.path(name)))))  # noqa: S704 - escaped before


def _cards(report: Report, charts: Sequence[Shown]) -> Iterator[Card]:
    explained: set[str] = set()
    for number, finding in enumerate(report.findings, 1):
        page = None
        if finding.code in report.manual and finding.code not in explained:
            explained.add(finding.code)
            page = manual.to_html(report.manual[finding.code])
        anchor = f"finding-{number}"
        yield _card(anchor, finding, report, page, tuple(chart for chart in charts if _shows(chart, finding, anchor)))


def _shows(chart: Shown, finding: Finding, anchor: str) -> bool:
    family = summary.family_of(finding.code)
    if chart.device and family == "MEM" and finding.seen_on == "cpu":
        return False
    return anchor in chart.anchors or not chart.codes.isdisjoint({finding.code, family})


def _card(name: str, finding: Finding, report: Report, page: Markup | None, shown_in: tuple[Shown, ...]) -> Card:
    place = str(finding.site) if finding.site else ""
    excerpt = report.excerpts.get(place)
    return Card(
        id=name,
        finding=finding,
        severity=summary.severity(finding).value,
        title=title(finding.name) or finding.code,
        place=place,
        price=costs.short(finding, "µs"),
        share=_share(finding, report),
        basis=_basis(finding),
        between=costs.between(finding, "µs"),
        seen_on=_SEEN_ON[finding.seen_on],
        frequency=summary.frequency(finding, report),
        excerpt=tuple(_excerpt(excerpt, finding)),
        fix=_fix(finding),
        proof=proof(finding.verified) if finding.verified else None,
        page=page,
        shown_in=shown_in,
    )


def _basis(finding: Finding) -> str:
    source = _SOURCES.get(finding.seen_on)
    if costs.basis(finding) == costs.NOT_PROVEN:
        return f"{summary.cost(finding, 'µs')}, but the interval reaches zero"
    if finding.basis == "estimated":
        return f"estimated from {source or 'this run, not measured'}"
    return {"measured": f"measured in {source or 'this run'}", "none": "not priced"}[finding.basis]


def _share(finding: Finding, report: Report) -> str:
    lost, times = finding.proven_us, report.run.step_us
    if lost is None or times is None or times.median <= 0:
        return ""
    return f"{amounts.percent(lost / times.median)} of the median step"


def _excerpt(excerpt: Excerpt | None, finding: Finding) -> Iterator[CodeLine]:
    site = finding.site
    if site is None:
        return
    if excerpt is None or not excerpt.lines:
        if site.text:
            yield CodeLine("marked", site.line, text.one_line(site.text, LINE_LIMIT))
        return
    margin = _margin(excerpt)
    for number, line in excerpt.opening[:OPENING_LINES]:
        yield CodeLine("opening", number, text.one_line(line[margin:], LINE_LIMIT))
    for number, line in enumerate(excerpt.lines, excerpt.first):
        yield CodeLine("marked" if number == site.line else "plain", number, text.one_line(line[margin:], LINE_LIMIT))


def _margin(excerpt: Excerpt) -> int:
    """Spaces that all lines begin with: deep code would stand outside a phone's screen."""
    written = [line for line in (*(line for _, line in excerpt.opening), *excerpt.lines) if line.strip()]
    return min((len(line) - len(line.lstrip(" ")) for line in written), default=0)


def _fix(finding: Finding) -> Fix | None:
    remedy = finding.remedy
    if remedy is None:
        return None
    return Fix(
        text=remedy.text,
        safe=remedy.safe,
        diff=tuple(_diff(remedy.diff or "")),
        refused=remedy.refused or "",
        promises=tuple(dict.fromkeys(_promise(edit) for edit in remedy.edits if edit.reason)),
        config="\n".join(f"{name}={value}" for name, value in (remedy.config or {}).items()),
    )


def _promise(edit: Edit) -> str:
    return text.one_line(edit.reason, 500)


def _diff(diff: str) -> Iterator[CodeLine]:
    lines = diff.rstrip("\n").split("\n") if diff else []
    for line in lines[:DIFF_LINES]:
        yield CodeLine(_diff_kind(line), None, text.one_line(line, LINE_LIMIT))
    if len(lines) > DIFF_LINES:
        yield CodeLine("hunk", None, f"[{len(lines) - DIFF_LINES} more lines: see fixes.patch]")


def _diff_kind(line: str) -> Literal["add", "remove", "hunk", "file", "plain"]:
    if line.startswith(("--- ", "+++ ", "diff ")):
        return "file"
    if line.startswith("@@"):
        return "hunk"
    return "add" if line.startswith("+") else "remove" if line.startswith("-") else "plain"
