"""What the HTML page shows, made ready for the template: ids, cut lines, marked diffs, words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markupsafe import Markup

from auditor import amounts
from auditor.model import Excerpt, Finding, Report, editors
from auditor.model.prices import share_of_step

from . import summary, text
from .verified import Proof, proof

_MESSAGE_LIMIT = 5000
_BRIEF = 110
"""Characters of a message that a row shows."""
_MANY = 18
"""Digits that no amount of memory has."""

# Not ";" or "&": they end and begin what escaping wrote.
_SEPARATOR = re.compile(r"([.:_])(?=[^.:_])")
_WHOLE = 32
"""Characters of a name that is never broken: ``train.py:35`` moves to the next line as one."""

_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
_MARKDOWN.disable(["link", "image", "autolink", "reference"])
_MANUAL_LIMIT = 20_000


def _headers(state: StateCore) -> None:
    """The first cell of each row of a table names it, for a screen reader."""
    first = False
    for token in state.tokens:
        if token.type == "tr_open":
            first = True
        elif token.type == "th_open":
            token.attrSet("scope", "col")
        elif first and token.type in ("td_open", "td_close"):
            token.tag, first = "th", token.type == "td_open"
            if first:
                token.attrSet("scope", "row")


_MARKDOWN.core.ruler.push("headers", _headers)

_SOURCES = {"trace": "the trace", "snapshot": "the snapshot"}
"""What a price was estimated from, where it was not a run of ours."""
_SEEN_ON = {
    "cpu": "seen on the CPU",
    "cuda": "seen on the GPU",
    "rehearsal": "seen in the rehearsal of the GPU path (no times)",
    "null": "seen on a null device (torch's own CUDA code without a GPU, no times)",
    "trace": "seen in the trace",
    "snapshot": "seen in the memory snapshot",
    "source": "read in the source",
}


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
class PagePlace:
    """A place that a finding joins; ``code``, ``price`` and ``share`` where it has them."""

    place: str
    code: str
    expression: str
    per_step: str
    price: str
    share: str


@dataclass(frozen=True)
class Page:
    """The manual page of a rule and its place on the page."""

    id: str
    code: str
    html: Markup


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
    pages: tuple[Page, ...]
    """Manual pages of its rules, each on the first finding of the rule only."""
    shown_in: tuple[Shown, ...]
    """Charts in which it can be seen."""
    parts: tuple[PagePlace, ...] = ()
    editor: str = ""
    """Opens its line in an editor; empty if that is not known to work."""


@dataclass(frozen=True)
class Shown:
    """A chart that findings may link to: those of ``codes`` (rules or families)."""

    id: str
    title: str
    codes: frozenset[str]
    device: bool = False
    """Whether it shows a device's memory: it cannot show what a CPU's memory finding is about."""


def cards(report: Report, charts: Sequence[Shown] = ()) -> tuple[Card, ...]:
    """All findings in the report's order."""
    return tuple(_cards(report, charts))


def title(name: str) -> str:
    """``scalar-read-every-step`` as ``Scalar read every step``."""
    words = name.replace("-", " ").strip()
    return words[:1].upper() + words[1:]


def prose(words: str) -> Markup:
    """A rule's words: code between backticks, microseconds spelt as on the rest of the page."""
    parts = text.shorten(words, _MESSAGE_LIMIT).split("`")
    if len(parts) % 2 == 0:  # one stands alone: it is no quotation mark
        return Markup("{}").format(words)
    marked = (
        Markup("<code>{}</code>").format(part)
        if place % 2
        else Markup("{}").format(text.micro(part))
        for place, part in enumerate(parts)
    )
    return Markup("").join(marked)


def manual(markdown: str) -> Markup:
    """A manual page as HTML; its own HTML, links and images are shown as text."""
    tokens = _MARKDOWN.parse(text.shorten(text.visible(markdown), _MANUAL_LIMIT))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # it stands in a finding, whose title is an h3
            token.tag = f"h{min(6, int(token.tag[1:]) + 3)}"
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return Markup(html.replace("<pre>", '<pre tabindex="0">'))  # noqa: S704 - of the renderer alone


def environment(report: Report) -> Iterator[tuple[str, str]]:
    """Names and values of the environment for people: ``cpu_count`` without underscore, units."""
    for name, value in report.environment.items():
        shown = (
            amounts.size(int(value))
            if name == "host_memory" and value.isdecimal() and len(value) < _MANY
            else value
        )
        yield (name.replace("_", " ") if name.islower() else name), shown


def breakable(name: str) -> Markup:
    """A path or dotted name that may wrap after its slashes and separators, unseen in a copy."""
    parts = (
        part if len(part) <= _WHOLE else _SEPARATOR.sub(r"\1<wbr>", part)
        for part in str(Markup.escape(text.path(name))).split("/")
    )
    return Markup("/<wbr>".join(parts))  # noqa: S704 - escaped before


def brief(words: str) -> str:
    """The beginning of a message, cut between words, for a row that has no place to show."""
    line = text.one_line(words, _MESSAGE_LIMIT)
    if len(line) <= _BRIEF:
        return line
    cut = line[:_BRIEF].rpartition(" ")[0].rstrip(" ,;:")
    return f"{cut}`…" if cut.count("`") % 2 else f"{cut}…"


def explained(report: Report) -> dict[str, str]:
    """Id of the manual page of each rule that found something: with its first finding."""
    known: dict[str, str] = {}
    for number, finding in enumerate(report.findings, 1):
        for code in finding.codes:
            own = "" if code == finding.code else f"-{len(known)}"
            if code in report.manual:
                known.setdefault(code, f"rule-finding-{number}{own}")
    return known


def _cards(report: Report, charts: Sequence[Shown]) -> Iterator[Card]:
    left = explained(report)
    for number, finding in enumerate(report.findings, 1):
        pages = tuple(
            Page(left.pop(code), code, manual(report.manual[code]))
            for code in finding.codes
            if code in left
        )
        anchor = f"finding-{number}"
        yield _card(
            anchor,
            finding,
            report,
            pages,
            tuple(chart for chart in charts if _shows(chart, finding)),
        )


def _shows(chart: Shown, finding: Finding) -> bool:
    family = summary.family_of(finding.code)
    if chart.device and family == "MEM" and summary.seen_on(finding) == "cpu":
        return False
    return not chart.codes.isdisjoint({*finding.codes, family})


def _card(
    name: str,
    finding: Finding,
    report: Report,
    pages: tuple[Page, ...],
    shown_in: tuple[Shown, ...],
) -> Card:
    place = str(finding.site) if finding.site else ""
    at = finding.site.place if finding.site else ("", 0)
    excerpt = report.excerpts.get(f"{at[0]}:{at[1]}")
    address = report.editor_links.get(place, "")
    said = summary.share(finding, report)
    return Card(
        id=name,
        finding=finding,
        severity=summary.severity(finding).value,
        title=title(finding.name) or finding.code,
        place=place,
        price=text.micro(summary.short_price(finding)),
        share=f"{said} of the {summary.usual_step(report)}" if said else "",
        basis=_basis(finding),
        between=text.micro(summary.between(finding)),
        seen_on=_SEEN_ON[summary.seen_on(finding)],
        frequency=summary.frequency(finding, report),
        excerpt=tuple(excerpt_lines(excerpt, finding)),
        fix=_fix(finding),
        proof=proof(finding.verified) if finding.verified else None,
        pages=pages,
        shown_in=shown_in,
        parts=tuple(_parts(finding, report)),
        editor=address if editors.is_link(address) else "",
    )


def _basis(finding: Finding) -> str:
    source = _SOURCES.get(summary.seen_on(finding))
    if summary.basis(finding) == summary.NOT_PROVEN:
        return f"{text.micro(summary.cost(finding))}, but the interval reaches zero"
    if finding.basis == "estimated":
        return f"estimated from {source or 'this run, not measured'}"
    return {"measured": f"measured in {source or 'this run'}", "none": summary.unpriced(finding)}[
        finding.basis
    ]


def _parts(finding: Finding, report: Report) -> Iterator[PagePlace]:
    """Rows of the table of what a finding joins."""
    for place in finding.places:
        us, times = place.lost_us_per_step, report.run.step_us
        found = share_of_step(us, times) if us is not None else None
        yield PagePlace(
            str(place.site),
            place.code if place.code != finding.code else "",
            place.text,
            summary.seldom(place.per_step),
            "" if us is None else f"{text.micro(amounts.duration(us))} / step",
            "" if found is None else amounts.percent(found),
        )


def _fix(finding: Finding) -> Fix | None:
    remedy = finding.remedy
    if remedy is None:
        return None
    return Fix(
        text=remedy.text,
        safe=remedy.safe,
        diff=tuple(diff_lines(remedy.diff or "")),
        refused=remedy.refused or "",
        promises=tuple(
            dict.fromkeys(text.one_line(edit.reason, 500) for edit in remedy.edits if edit.reason)
        ),
        config="\n".join(f"{name}={value}" for name, value in (remedy.config or {}).items()),
    )


# -- code lines ------------------------------------------------------------------------------------
# Lines of source and of patches as the HTML page shows them: cut, numbered, marked.


LINE_LIMIT = 400
"""Characters of a source or diff line that are shown."""

OPENING_LINES = 8
"""Heads of functions and classes around an excerpt that are shown."""

DIFF_LINES = 400
"""Lines of one diff that are shown; fixes.patch has them all."""


@dataclass(frozen=True)
class CodeLine:
    """One line of an excerpt or a diff. ``kind`` is a class of the style sheet."""

    kind: Literal["plain", "marked", "opening", "add", "remove", "hunk", "file"]
    number: int | None
    text: str


def excerpt_lines(excerpt: Excerpt | None, finding: Finding) -> Iterator[CodeLine]:
    """The source around a finding, its lines marked; the line alone if that is all there is."""
    site = finding.site
    if site is None:
        return
    if excerpt is None or not excerpt.lines:
        if site.text:
            yield CodeLine("marked", site.line, text.one_line(site.text, LINE_LIMIT))
        return
    margin = _margin(excerpt)
    marked = {site.line, *(place.site.line for place in finding.places)}
    for number, line in excerpt.opening[:OPENING_LINES]:
        yield CodeLine("opening", number, text.one_line(line[margin:], LINE_LIMIT))
    for number, line in enumerate(excerpt.lines, excerpt.first):
        yield CodeLine(
            "marked" if number in marked else "plain",
            number,
            text.one_line(line[margin:], LINE_LIMIT),
        )


def _margin(excerpt: Excerpt) -> int:
    """Spaces that all lines begin with: deep code would stand outside a phone's screen."""
    written = [
        line for line in (*(line for _, line in excerpt.opening), *excerpt.lines) if line.strip()
    ]
    return min((len(line) - len(line.lstrip(" ")) for line in written), default=0)


def diff_lines(diff: str) -> Iterator[CodeLine]:
    """The lines of a patch, the first :data:`DIFF_LINES` of them."""
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
