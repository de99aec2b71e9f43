"""The report in a terminal: one line for each finding, no path cut, nothing that steers it."""

from __future__ import annotations

import io
import os
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.text import Text

from auditor import amounts
from auditor.model import Finding, Report, Severity, TargetError, Verdict

from . import (
    communication,
    compilation,
    device,
    headline,
    modules,
    ranks,
    sections,
    summary,
    text,
    verified,
    what_ifs,
)

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}
_HEADINGS = ("severity", "rule", "cost", "per step", "where")
_TRACEBACK_LINES = 60
_MESSAGE_LIMIT = 1000
MOST_OPERATORS = 8
_RANKS = 8
_EXCHANGES = 8
_LEAST = 24
"""Characters of a message that are shown in a table however narrow the terminal is."""
_REASONS = 3
"""Reasons for skipping that are listed, one line each; report.html has them all, with the rules."""


@dataclass(frozen=True)
class Terminal:
    """Findings as a table, then what was looked at, warnings and how the run ended. The caller
    prints the report's path after it.

    Without ``colour`` the text holds no escape sequence. ``width`` wraps messages; a place in the
    source is never wrapped nor cut. ``encoding`` is that of the stream: characters it cannot hold
    are written as escapes.
    """

    colour: bool = False
    width: int = 80
    encoding: str = "utf-8"

    name = "terminal"
    suffix = ".txt"

    @classmethod
    def for_stream(cls, stream: TextIO) -> Terminal:
        """As fits ``stream``: colour only on a terminal without ``NO_COLOR`` or ``TERM=dumb``."""
        tty = stream.isatty()
        colour = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        width = shutil.get_terminal_size().columns if tty else 80
        return cls(
            colour=colour,
            width=max(40, width),
            encoding=getattr(stream, "encoding", None) or "utf-8",
        )

    def render(self, report: Report) -> str:
        """The whole text, ending in a line feed."""
        out = io.StringIO()
        console = Console(
            file=out,
            width=self.width,
            force_terminal=self.colour,
            color_system="standard" if self.colour else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},  # the stream was judged in for_stream; rich must not judge again
        )
        for part in sections.walk(report, _PARTS):
            for line in part(report, self.width):
                console.print(line, soft_wrap=True)
        return out.getvalue().encode(self.encoding, "backslashreplace").decode(self.encoding)


def _subject(report: Report, width: int) -> Iterator[Text]:
    run = report.run
    where = summary.place(report) + summary.processes(report)
    torch = f", torch {text.one_line(run.torch, 80)}" if run.torch else ""
    told = summary.steps(report)
    steps = f"{told} " if told else "judged "
    ended = f": {summary.outcome(report)}" if run.recorded_at or run.outcome != "completed" else ""
    yield Text(f"{text.path(run.target)}: {steps}{where}{torch}{ended}", "bold")
    if times := summary.step_time(report):
        yield from _wrapped(f"step time: {times}", width)
    if ends := report.environment.get("a step ends with"):
        yield from _wrapped(f"a step ends with {text.one_line(ends, 400)}", width)
    rehearsed = summary.rehearsed(report)
    if rehearsed:
        yield from _wrapped(rehearsed, width)
    if opening := device.opening(report):
        yield from _wrapped(opening, width, style="bold")


def _cautions(sentences: Iterable[str], width: int, style: str = "bold yellow") -> Iterator[Text]:
    for sentence in sentences:
        yield from _wrapped(
            f"warning: {text.one_line(sentence, _MESSAGE_LIMIT)}", width, style=style
        )


def _headline(report: Report, width: int) -> Iterator[Text]:
    yield Text()
    for words in headline.headline(report):
        yield from _wrapped(text.one_line(words, _MESSAGE_LIMIT), width, style="bold")


def _sentences(sentences: Iterable[str], width: int) -> Iterator[Text]:
    for sentence in sentences:
        yield from _wrapped(sentence, width)


def _method(report: Report, width: int) -> Iterator[Text]:
    if report.verification is not None:
        yield from _sentences(verified.method(report.verification), width)


def _ranks(report: Report, width: int) -> Iterator[Text]:
    if alone := ranks.alone(report):
        yield from _wrapped(f"of each step: {alone}", width)
        return
    yield Text()
    headings, rows = ranks.table(report, _RANKS)
    yield from _columns((headings, *rows), str.rjust)
    if said := ranks.left_out(report, _RANKS):
        yield Text(f"  {said}", "dim")


def _communication(report: Report, width: int) -> Iterator[Text]:
    yield Text()
    yield from _sentences(communication.sentences(report), width)
    yield from _columns((communication.SHARES, *communication.shares(report, _RANKS)), str.rjust)
    yield Text()
    rows = communication.exchanges(report, _EXCHANGES)
    yield from _columns((communication.EXCHANGES, *rows), str.ljust)
    if said := communication.left_out(report, _EXCHANGES):
        yield Text(f"  {said}", "dim")


def _columns(
    rows: tuple[tuple[str, ...], ...], aligned: Callable[[str, int], str]
) -> Iterator[Text]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for number, cells in enumerate(rows):
        yield Text("  ".join(map(aligned, cells, widths)).rstrip(), "" if number else "dim")


def _device(report: Report, width: int) -> Iterator[Text]:
    for number, line in enumerate(device.lines(report, width)):
        if not number:
            yield Text()
        yield Text(line, "" if number else "dim")


def _table(report: Report, width: int) -> Iterator[Text]:
    yield Text()
    rows = [_cells(finding) for finding in report.findings]
    widths = [
        max(len(cells[column]) for cells in (_HEADINGS, *rows))
        for column in range(len(_HEADINGS) - 1)
    ]
    yield _row(_HEADINGS, widths, ("dim",) * len(_HEADINGS))
    fixes: set[str] = set()
    for finding, cells in zip(report.findings, rows, strict=True):
        style = _STYLES[summary.severity(finding)]
        yield _row(cells, widths, (style, "bold", "", "", "bold"))
        yield from _wrapped(text.one_line(finding.message, _MESSAGE_LIMIT), width, indent="    ")
        if (fix := _fix(finding)) and fix not in fixes:
            fixes.add(fix)
            yield from _wrapped(f"fix: {fix}", width, indent="    ")
        if said := verified.line(finding):
            yield from _wrapped(said, width, indent="    ")
    yield Text()


def _fix(finding: Finding) -> str:
    """First sentence of the remedy, and whether there is a safe patch for it."""
    remedy = finding.remedy
    if remedy is None:
        return ""
    said = text.one_line(remedy.text, _MESSAGE_LIMIT).partition(". ")[0].removesuffix(".")
    return f"{said} (safe patch: audit fix)" if remedy.diff and remedy.safe else said


def _what_if(report: Report, width: int) -> Iterator[Text]:
    """What each fix saves, alone and after the fixes above it."""
    rows = what_ifs.rows(report)
    if rows:
        yield Text("what each fix saves per step:")
        told = [(row.code, row.alone, row.after, row.left) for row in rows]
        *headings, last = what_ifs.HEADINGS
        widths = [max(map(len, column)) for column in zip(headings, *told, strict=True)]
        places = [last, *(row.where for row in rows)]
        for number, (cells, place) in enumerate(zip((headings, *told), places, strict=True)):
            code, *times = cells
            padded = (code.ljust(widths[0]), *map(str.rjust, times, widths[1:]), place)
            line = "  " + "  ".join(padded)
            said = "" if place else _cut(rows[number - 1].message, width - len(line))
            yield Text(line + said, "" if number else "dim")
    yield from _sentences(what_ifs.sentences(report), width)


def _modules(report: Report, width: int) -> Iterator[Text]:
    told = "; ".join(filter(None, (f"shares of {modules.basis(report)}", modules.rates(report))))
    yield from _wrapped(f"step by module, each without its submodules ({told}):", width)
    yield from (Text(f"  {line}", "dim") for line in modules.lines(report))
    yield Text()


def _cut(words: str, room: int) -> str:
    most = max(room, _LEAST)
    return words if len(words) <= most else f"{words[: most - 3].rstrip()}..."


def _cells(finding: Finding) -> tuple[str, ...]:
    price = summary.price(finding)
    words = (summary.baseline_word(finding), summary.severity(finding).value)
    return (
        " ".join(word for word in words if word),
        text.path(finding.code),
        price or summary.unpriced(finding),
        summary.per_step(finding) or "-",
        text.path(str(finding.site)) if finding.site else "(no place in the source)",
    )


def _row(cells: tuple[str, ...], widths: list[int], styles: tuple[str, ...]) -> Text:
    padded = (*map(str.ljust, cells, widths), cells[-1])
    return Text("  ").join(Text(cell, style) for cell, style in zip(padded, styles, strict=True))


def _operators(report: Report, width: int) -> Iterator[Text]:
    """Where the time of a trace went that shows no GPU: its operators."""
    if report.run.recorded_at or report.device_time is not None:
        return
    each = " per step" if report.run.steps else ""  # without marks of steps it is the whole trace
    for name, calls, us in report.operators[:MOST_OPERATORS]:
        often = f"{amounts.digits(calls)} {'call' if calls == 1 else 'calls'}{each}"
        said = f"{text.one_line(name, 80)}: {amounts.duration(us)} of its own in {often}"
        yield from _wrapped(said, width)


def _looked_at(report: Report, width: int) -> Iterator[Text]:
    words = {
        "found": "with findings",
        "clean": "passed",
        "skipped": "could not be checked",
        "failed": "failed",
    }
    counted = {status: len(summary.with_status(report, status)) for status in summary.STATUSES}
    said = ", ".join(
        f"{number} {words[status]}"
        for status, number in counted.items()
        if number or status != "failed"
    )
    skipped = counted["skipped"]
    if report.findings:  # else the headline has counted them
        yield from _wrapped(f"rules: {said}{':' * bool(skipped)}", width)
    elif skipped:
        yield Text(f"{amounts.count(skipped, 'rule')} could not be checked:")
    yield from _skipped(summary.with_status(report, "skipped"), width)
    for verdict in summary.with_status(report, "failed"):
        reason = text.one_line(verdict.reason.strip().rpartition("\n")[2], 300)
        yield from _wrapped(
            f"  failed: {text.one_line(verdict.code, 40)}: {reason}", width, hanging="    "
        )


def _skipped(verdicts: tuple[Verdict, ...], width: int) -> Iterator[Text]:
    """The reasons that kept most rules from looking, a line each."""
    groups = summary.reasons(verdicts)
    for reason, group in groups[:_REASONS]:
        said = text.one_line(reason.strip(), 300)
        room = width - 8
        yield Text(
            f"  {len(group):4}  {said if len(said) <= room else said[: room - 3].rstrip() + '...'}",
            "dim",
        )
    rest = groups[_REASONS:]
    if rest:
        others = "another reason" if len(rest) == 1 else f"others, for {len(rest)} reasons"
        yield Text(f"  {sum(len(group) for _, group in rest):4}  {others}", "dim")


def _ending(report: Report, width: int) -> Iterator[Text]:
    error = report.run.error
    yield Text()
    yield Text(f"{summary.outcome(report)}{_where(error)}", "bold red")
    if error is None:
        return
    for line in text.tail_lines(error.traceback, _TRACEBACK_LINES) if error.traceback else ():
        yield Text(f"  {line}")
    told, said = error.traceback.rstrip(), f"{error.type}: {error.message}".rstrip()
    if not told.endswith(said) and error.type not in told.rpartition("\n")[2]:
        yield from _wrapped(text.one_line(f"{error.type}: {error.message}", _MESSAGE_LIMIT), width)


def _where(error: TargetError | None) -> str:
    if error is None:
        return ""
    words = f" in step {error.step}" if error.step is not None else ""
    words += (
        f" ({text.one_line(amounts.pass_named(error.pass_name), 40)})" if error.pass_name else ""
    )
    return words + (f", at {text.path(str(error.site))}" if error.site else "")


def _wrapped(
    words: str, width: int, *, style: str = "", indent: str = "", hanging: str = ""
) -> Iterator[Text]:
    lines = textwrap.wrap(
        words,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for line in lines or [""]:
        yield Text(line, style)


_PARTS: dict[str, Callable[[Report, int], Iterator[Text]]] = {
    "summary": _subject,
    "caveats": lambda report, width: _cautions(report.caveats, width),
    "failure": _ending,
    "cautions": lambda report, width: _cautions(report.cautions, width),
    "headline": _headline,
    "baseline": lambda report, width: _sentences(summary.baseline_sentences(report), width),
    "findings": _table,
    "what-if": _what_if,
    "modules": _modules,
    "verdicts": _looked_at,
    "ranks": _ranks,
    "communication": _communication,
    "device": _device,
    "compilation": lambda report, width: _wrapped(
        f"torch.compile: {' '.join(compilation.sentences(report))}", width
    ),
    "operators": _operators,
    "warnings": lambda report, width: _cautions(summary.limits(report), width, "yellow"),
    "method": _method,
}
"""What the terminal has of the sections of a report."""
