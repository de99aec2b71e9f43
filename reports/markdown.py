"""A Markdown summary that fits a pull request comment: bounded, and inert whatever it quotes."""

import re
from collections.abc import Callable, Iterator

from auditor import amounts
from auditor.model import Finding, Report

from . import device, headline, modules, sections, summary, text

LIMIT = 65_536
"""Bytes of the whole summary at most; GitHub's limit for a comment is as many characters."""

_ROWS = 50
_TEXT = 1000
_DIFF_LINES = 60
_MARKS = re.compile(r"[\\`*_{}\[\]<>&|~$#]|\A(?:[-+=]|\d(?=\d*[.)]))")
# GitHub looks for mentions, references and addresses in the finished page, where an entity no
# longer protects: a comment between the characters does.
_LINKED = re.compile(r"(?<=[@#])(?=\w)|(?<=:)(?=//)|(?<=www)(?=\.)|(?<=GH)(?=-\d)", re.IGNORECASE)
_APART = "<!-- -->"
_TICK = f"&#{ord('`')};"


class Markdown:
    """Headline, table of findings, folded sections. The least costly are left out first."""

    name = "markdown"
    suffix = ".md"

    def render(self, report: Report) -> str:
        """The summary, at most :data:`LIMIT` bytes of UTF-8."""
        end = "".join(f"{line}\n" for line in _end(report))
        parts = (piece for part in sections.walk(report, _PARTS) for piece in part(report))
        return _fitted(parts, LIMIT - len(end.encode()) - 200) + end


def escape(words: str, limit: int = _TEXT) -> str:
    """``words`` on one line, shown as they are: no markup, no mention, no reference, no link."""
    shown = _MARKS.sub(
        lambda mark: f"&#{ord(mark[0])};", _LINKED.sub("\0", text.one_line(words, limit).strip())
    )
    return shown.replace("\0", _APART)


def prose(words: str, limit: int = _TEXT) -> str:
    """A rule's words as :func:`escape` gives them, what stood between backticks as code."""
    parts = escape(words, limit).split(_TICK)
    if len(parts) % 2 == 0:  # one stands alone: it is no quotation mark
        return _TICK.join(parts)
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )


def _fitted(parts: Iterator[str], limit: int) -> str:
    """As many parts as fit, and how many did not."""
    kept: list[str] = []
    left_out = 0
    for part in parts:
        size = len(part.encode())
        if left_out or size > limit:
            left_out += 1
        else:
            kept.append(part)
            limit -= size
    if left_out:
        kept.append(f"\n{left_out} more in report.html.\n")
    return "".join(kept)


def _findings(report: Report) -> Iterator[str]:
    yield from _table(report)
    for finding in report.findings:
        yield "".join(f"{line}\n" for line in _section(report, finding))


def _opening(report: Report) -> Iterator[str]:
    yield f"### Audit of {escape(report.run.target, 200)}\n\n{_subject(report)}\n\n"
    if opening := device.opening(report):
        yield f"**{escape(opening)}**\n\n"


def _subject(report: Report) -> str:
    run = report.run
    steps = f"{amounts.count(run.steps, 'step')} " if run.steps else "judged "
    words = [f"{steps}{summary.place(report)}{summary.processes(report)}", summary.outcome(report)]
    if times := summary.step_time(report):
        words.append(f"step time {times}")
    return escape(", ".join(words))


def _table(report: Report) -> Iterator[str]:
    yield "| | rule | cost | where | what |\n|---|---|---|---|---|\n"
    for finding in report.findings[:_ROWS]:
        price = summary.price(finding)
        cells = (
            " ".join(
                filter(None, (summary.baseline_word(finding), summary.severity(finding).value))
            ),
            escape(finding.code, 40),
            price or summary.unpriced(finding),
            f"<code>{escape(str(finding.site), 300)}</code>" if finding.site else "",
            prose(finding.message, 300),
        )
        yield f"| {' | '.join(cells)} |\n"
    if len(report.findings) > _ROWS:
        yield f"\nand {amounts.count(len(report.findings) - _ROWS, 'more finding')}\n"


def _section(report: Report, finding: Finding) -> Iterator[str]:
    """A folded section; nothing where it would only repeat the row of the table."""
    remedy, seen = finding.remedy, summary.frequency(finding, report)
    if remedy is None and not finding.facts:
        return
    place = f" {escape(str(finding.site), 300)}" if finding.site else ""
    yield f"\n<details><summary><b>{escape(finding.code, 40)}</b>{place}</summary>\n"
    yield prose(finding.message) + (f" ({seen})" if seen else "")
    if finding.facts:
        yield ""
        yield from (
            f"- {escape(label, 200)}: {prose(value, 300)}" for label, value in finding.facts
        )
    if remedy is not None:
        yield f"\n{prose(remedy.text)}"
        yield from (
            f"\n<code>{escape(name, 200)}={escape(value, 300)}</code>"
            for name, value in (remedy.config or {}).items()
        )
        yield from _diff(remedy.diff or "")
    yield "\n</details>"


def _diff(diff: str) -> Iterator[str]:
    if not diff:
        return
    lines = [text.one_line(line, 400) for line in diff.rstrip("\n").split("\n")]
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"\n{fence}diff"
    yield from lines[:_DIFF_LINES]
    yield fence
    if len(lines) > _DIFF_LINES:
        yield f"\nand {amounts.count(len(lines) - _DIFF_LINES, 'more line')} in fixes.patch"


def _end(report: Report) -> Iterator[str]:
    yield f"\n{escape(summary.looked(report))}."
    for warning in summary.limits(report)[:10]:
        yield f"- {escape(warning, 300)}"
    tool = report.tool.get("name", "torch-step-audit")
    yield f"\n<sub>{escape(tool, 80)} {escape(report.tool.get('version', ''), 80)}</sub>"


_PARTS: dict[str, Callable[[Report], Iterator[str]]] = {
    "summary": _opening,
    "caveats": lambda report: (f"> **{escape(said)}**\n\n" for said in report.caveats),
    "cautions": lambda report: (f"**Warning:** {escape(said)}\n\n" for said in report.cautions),
    "headline": lambda report: (f"**{escape(said)}**\n\n" for said in headline.headline(report)),
    "baseline": lambda report: (
        f"{escape(said)}.\n\n" for said in summary.baseline_sentences(report)
    ),
    "findings": _findings,
    "modules": lambda report: iter((f"\n{escape(modules.sentence(report))}.\n",)),
}
"""What the summary has of the sections of a report; its end is never left out."""
