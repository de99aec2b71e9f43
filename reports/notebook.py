"""A report inside a notebook: one piece of HTML without scripts, styles of its own and nothing to
fetch.
"""

from __future__ import annotations

from html import escape

from auditor.model import Finding, Report

from . import baselines, costs, headline, summary, text

_MOST = 50
"""Findings that are shown; report.html has them all."""
_WORDS = 1000
_DIFF_LINES = 60
_COLOURS = {"error": "#b3261e", "warning": "#8a5a00", "note": "#3d5a80"}


class Notebook:
    """What ``_repr_html_`` shows: the headline, and for each finding its line, price and patch."""

    name = "notebook"
    suffix = ".html"

    def render(self, report: Report) -> str:
        """The piece, for the body of a page."""
        run = report.run
        parts = [f"<p><b>Audit of {_line(run.target, 200)}</b>: {_line(_subject(report))}</p>"]
        said = (*report.caveats, *report.cautions, *headline.headline(report))
        parts += [f"<p>{_line(words)}</p>" for words in (*said, *baselines.sentences(report))]
        parts += map(_finding, report.findings[:_MOST])
        if len(report.findings) > _MOST:
            parts.append(f"<p>and {len(report.findings) - _MOST} more</p>")
        parts += [f"<p><small>{_line(words)}</small></p>" for words in summary.limits(report)]
        return "<div>" + "\n".join(parts) + "</div>"


def _subject(report: Report) -> str:
    words = [f"{summary.steps(report) or 'judged'} {summary.place(report)}"]
    words.append(summary.outcome(report))
    if times := summary.step_time(report):
        words.append(f"step time {times}")
    return ", ".join(words)


def _finding(finding: Finding) -> str:
    level = summary.severity(finding).value
    place = f" <code>{escape(text.path(str(finding.site)))}</code>" if finding.site else ""
    price = costs.price(finding)
    opening = (
        f'<b style="color:{_COLOURS[level]}">{baselines.word(finding)} {level}</b> '
        f"<b>{_line(finding.code, 40)}</b>{place} {escape(price or 'not priced')}<br>"
        f"{_line(finding.message)}"
    )
    remedy = finding.remedy
    if remedy is None:
        return f"<p>{opening}</p>"
    told = f"<br>{_line(remedy.text)}" if remedy.text else ""
    lines = text.tail_lines(remedy.diff, _DIFF_LINES) if remedy.diff else []
    shown = escape("\n".join(lines))
    patch = f"<details><summary>patch</summary><pre>{shown}</pre></details>" if lines else ""
    return f"<div><p>{opening}{told}</p>{patch}</div>"


def _line(words: str, limit: int = _WORDS) -> str:
    return escape(text.one_line(words, limit))
