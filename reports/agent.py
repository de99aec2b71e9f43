"""A report for a coding agent: a line per finding, one for what to do, and no more than a limit."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from auditor import amounts
from auditor.model import Finding, Report, Severity

from . import headline, modules, next_steps, sections, summary, text, verified

LIMIT = 6000
"""Characters of the whole text at most: about 1,500 tokens, at four characters each."""

_SENTENCES, _FAMILIES = 2, 4
_SENTENCE, _MESSAGE, _PLACE, _NAME = 240, 260, 160, 20
_FOLDER = 100
_FAMILY = re.compile(r"[A-Z]{2,12}")
_PATCHES = {next_steps.SAFE: "safe patch", next_steps.UNSAFE: "patch needs judgement"}
_Part = Callable[[Report], Iterable[str]]
_CUT = 200
"""Characters that stay free for what was left out."""


@dataclass(frozen=True)
class Agent:
    """Outcome, what limits it, findings in the report's order, what was left out, next commands.

    ``folder`` is that of the report, for the commands; ``limit`` in characters.
    """

    folder: str = next_steps.FOLDER
    limit: int = LIMIT

    name = "agent"
    suffix = ".txt"

    def render(self, report: Report) -> str:
        """The text, at most ``limit`` characters. We begin each line: no stranger's text does."""
        parts = {**_PARTS, "next": lambda report: _next(report, self.folder)}
        room = self.limit - _CUT - sum(len(line) + 1 for line in _lines(report, parts))
        parts["findings"] = lambda report: _findings(report, room)
        return "".join(f"{line}\n" for line in _lines(report, parts))


def _lines(report: Report, parts: Mapping[str, _Part]) -> Iterator[str]:
    return chain.from_iterable(part(report) for part in sections.walk(report, parts))


def _findings(report: Report, room: int) -> Iterator[str]:
    for number, finding in enumerate(report.findings):
        lines = _finding(finding)
        room -= sum(len(line) + 1 for line in lines)
        if room < 0:
            yield f"left out: {_counted(report.findings[number:])}; report.json has all"
            return
        yield from lines


def _counted(findings: Iterable[Finding]) -> str:
    counted = Counter(summary.severity(each) for each in findings)
    return summary.joined(
        amounts.count(counted[level], level.value) for level in Severity if counted[level]
    )


def _head(report: Report) -> Iterator[str]:
    run = report.run
    target, place = text.one_line(run.target, _PLACE), text.one_line(summary.place(report), _PLACE)
    where = f"{summary.steps(report)} {place}{summary.processes(report)}".strip()
    words = [f"{target}: {summary.outcome(report)}", where]
    if times := summary.step_time(report):
        words.append(f"step time {times}")
    yield f"audit of {', '.join(words)}"


def _error(report: Report) -> Iterator[str]:
    error = report.run.error
    if error is not None:
        said = text.one_line(f"{error.type}: {error.message}", _SENTENCE)
        place = f" at {text.one_line(str(error.site), _PLACE)}" if error.site else ""
        yield f"error: {said}{place}"


def _sentences(mark: str, sentences: Sequence[str]) -> Iterator[str]:
    for sentence in sentences[:_SENTENCES]:
        yield f"{mark}: {text.one_line(sentence, _SENTENCE)}"
    if len(sentences) > _SENTENCES:
        yield f"{mark}: {len(sentences) - _SENTENCES} more in report.json"


def _finding(finding: Finding) -> tuple[str, ...]:
    where = text.one_line(str(finding.site), _PLACE) if finding.site else "(no place)"
    patch = _PATCHES.get(next_steps.patch_of(finding), "no patch")
    level = " ".join(
        filter(None, (summary.baseline_word(finding), summary.severity(finding).value))
    )
    price = summary.price(finding) or summary.unpriced(finding)
    code, message = text.one_line(finding.code, _NAME), text.one_line(finding.message, _MESSAGE)
    line = f"- {code} {level} {where} | {price} | {patch} | {message}"
    todo = finding.remedy.text if finding.remedy is not None else ""
    more = (("do", todo), ("re-run", verified.line(finding)))
    return (line, *(f"  {mark}: {text.one_line(said, _MESSAGE)}" for mark, said in more if said))


def _next(report: Report, folder: str) -> Iterator[str]:
    commands = next_steps.commands(report)
    place = shlex.quote(folder) if len(folder) <= _FOLDER else next_steps.FOLDER
    safe = _safe_families(report)
    for family in safe[:_FAMILIES]:
        yield f"next: audit fix {place} --select {family} | git apply"
    if safe[_FAMILIES:]:
        yield f"next: the same for {amounts.count(len(safe) - _FAMILIES, 'more family', 'more families')}"
    if safe:
        yield "next: the same audit again; its findings say what is left"
    for command in commands:
        if command.before != "fix" or command.behind == "--unsafe":
            yield f"next: {command.line(place)}  # {command.does}"


def _safe_families(report: Report) -> tuple[str, ...]:
    """That of the highest price first; a forged report may name other families."""
    safe = (each for each in report.findings if next_steps.patch_of(each) == next_steps.SAFE)
    named = (summary.family_of(each.code) for each in safe)
    return tuple(dict.fromkeys(name for name in named if _FAMILY.fullmatch(name)))


_PARTS: dict[str, _Part] = {
    "summary": _head,
    "caveats": lambda report: _sentences("caveat", report.caveats),
    "failure": _error,
    "cautions": lambda report: _sentences("caution", report.cautions),
    "headline": lambda report: _sentences("result", headline.headline(report)),
    "baseline": lambda report: _sentences("baseline", summary.baseline_sentences(report)),
    "modules": lambda report: _sentences("modules", (modules.sentence(report),)),
    "verdicts": lambda report: (f"rules: {summary.looked(report)}",),
    "warnings": lambda report: _sentences("limit", summary.limits(report)),
}
"""What the text has of the sections of a report, beside its findings and the next commands."""
