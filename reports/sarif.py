"""SARIF 2.1.0: findings for code scanning, with fixes that an editor can apply."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from auditor.model import Finding, FoundAt, Report, Severity, Site, Verdict
from auditor.model.prices import priced

from . import costs, families, summary, text

SCHEMA_URI = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)

Object = dict[str, Any]

_MESSAGE_LIMIT = 4000
_SNIPPET_LIMIT = 1000
_ROOT = "SRCROOT"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_ENDED_WELL = "completed"


class Sarif:
    """One run of one tool. What could not be looked at is a notification, so that it never looks
    like a clean rule.

    A finding without a place in the source is put at the target's file as a whole, without a line:
    code scanning refuses results that have no location at all.
    """

    name = "sarif"
    suffix = ".sarif"

    def render(self, report: Report) -> str:
        """Indented JSON in ASCII: other characters, and whatever steers a terminal, are escapes of
        JSON.
        """
        return (
            json.dumps(
                {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [_run(report)]}, indent=2
            )
            + "\n"
        )


def _run(report: Report) -> Object:
    codes = {verdict.code: number for number, verdict in enumerate(_judged(report))}
    return {
        "tool": {"driver": _driver(report)},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {
            _ROOT: {"description": {"text": "The working directory of the audit."}}
        },
        "invocations": [_invocation(report)],
        "results": [_result(report, finding, codes) for finding in report.findings],
    }


# -- the tool and its rules ------------------------------------------------------------------------


def _judged(report: Report) -> tuple[Verdict, ...]:
    """One verdict for each code, those of findings among them even where a report forgot the
    verdict.
    """
    found = {verdict.code: verdict for verdict in report.verdicts}
    for finding in report.findings:
        for code in finding.codes:
            found.setdefault(
                code, Verdict(code, finding.name if code == finding.code else code, "found")
            )
    return tuple(found.values())


def _driver(report: Report) -> Object:
    driver: Object = {
        "name": text.one_line(report.tool.get("name", "torch-step-audit"), 200),
        "rules": [_rule(report, verdict) for verdict in _judged(report)],
    }
    version = report.tool.get("version")
    return driver | {"version": text.one_line(version, 200)} if version else driver


def _rule(report: Report, verdict: Verdict) -> Object:
    page = report.manual.get(verdict.code, "")
    first = page.partition("\n")[0].lstrip("# ")
    title = (first.partition(": ")[2] or first) or verdict.name.replace("-", " ")
    rule: Object = {
        "id": text.one_line(verdict.code, 200),
        "name": text.one_line(verdict.name, 200),
        "shortDescription": {"text": text.one_line(title, 1000)},
        "properties": {"tags": [text.one_line(families.family_of(verdict.code), 200)]},
    }
    severities = [
        summary.severity(finding) for finding in report.findings if verdict.code in finding.codes
    ]
    if severities:
        rule["defaultConfiguration"] = {
            "level": _LEVELS[min(severities, key=lambda severity: severity.rank)]
        }
    if page:
        shown = text.shorten(text.visible(page), 20_000)
        rule["help"] = {"text": shown, "markdown": shown}
    return rule


def _invocation(report: Report) -> Object:
    ended: Object = {
        "executionSuccessful": _is_whole(report),
        "toolExecutionNotifications": [*_failures(report)],
        "toolConfigurationNotifications": [*_limits(report)],
    }
    error = report.run.error
    if error is not None:
        said = f"{summary.outcome(report)}: {error.type}: {error.message}"
        ended["toolExecutionNotifications"].append(_notification("error", said))
    return ended


def _is_whole(report: Report) -> bool:
    ended = report.run.outcome == _ENDED_WELL and report.run.training != "nothing"
    return ended and not summary.with_status(report, "failed")


def _failures(report: Report) -> Iterator[Object]:
    for caveat in report.caveats:
        yield _notification("error", caveat)
    for verdict in summary.with_status(report, "failed"):
        yield _notification(
            "error",
            f"the rule failed: {verdict.reason.strip().rpartition(chr(10))[2]}",
            verdict.code,
        )


def _limits(report: Report) -> Iterator[Object]:
    for verdict in summary.with_status(report, "skipped"):
        yield _notification("note", f"not checked: {verdict.reason}", verdict.code)
    for warning in (*report.cautions, *summary.limits(report)):
        yield _notification("warning", warning)


def _notification(level: str, said: str, code: str = "") -> Object:
    notification: Object = {
        "level": level,
        "message": {"text": text.one_line(said, _MESSAGE_LIMIT)},
    }
    return (
        notification | {"associatedRule": {"id": text.one_line(code, 200)}}
        if code
        else notification
    )


# -- results ---------------------------------------------------------------------------------------


def _result(report: Report, finding: Finding, codes: dict[str, int]) -> Object:
    result: Object = {
        "ruleId": text.one_line(finding.code, 200),
        "ruleIndex": codes[finding.code],
        "level": _LEVELS[summary.severity(finding)],
        "message": {"text": _message(finding)},
        "locations": [_location(finding.site) if finding.site else _whole_target(report)],
        "partialFingerprints": {"auditFindingKey/v1": text.one_line(finding.key or finding.code)},
        "properties": _properties(finding),
    }
    if finding.baseline_state:
        result["baselineState"] = finding.baseline_state
    if finding.places:
        result["relatedLocations"] = [
            _related(number, place) for number, place in enumerate(finding.places, 1)
        ]
    fixes = [*_fixes(finding)]
    return result | {"fixes": fixes} if fixes else result


def _related(number: int, place: FoundAt) -> Object:
    said = f"{place.code}: {place.text}" if place.code else place.text
    return {
        "id": number,
        **_location(place.site),
        "message": {"text": text.one_line(said, _SNIPPET_LIMIT)},
    }


def _message(finding: Finding) -> str:
    words = [text.one_line(finding.message, _MESSAGE_LIMIT)]
    if finding.remedy is not None and finding.remedy.text:
        words.append(text.one_line(finding.remedy.text, _MESSAGE_LIMIT))
    return "\n".join(words) or finding.code


def _properties(finding: Finding) -> Object:
    facts = {
        text.one_line(label, 200): text.one_line(value, _SNIPPET_LIMIT)
        for label, value in finding.facts
    }
    return {
        "cost": costs.short(finding),
        "basis": finding.basis,
        "seenOn": summary.seen_on(finding),
        "lostMicrosecondsPerStep": priced(finding),
        "lostMicrosecondsPerStepLow": finding.lost_us_per_step_low,
        "lostMicrosecondsPerStepHigh": finding.lost_us_per_step_high,
        "proven": finding.proven_us is not None,
        "lostBytes": finding.lost_bytes,
        "facts": facts,
    }


def _location(site: Site) -> Object:
    physical: Object = {"artifactLocation": _artifact(site.file)}
    if site.line > 0:
        physical["region"] = {"startLine": site.line}
        if site.text:
            physical["region"]["snippet"] = {"text": text.one_line(site.text, _SNIPPET_LIMIT)}
    location: Object = {"physicalLocation": physical}
    if site.function:
        location["logicalLocations"] = [
            {"fullyQualifiedName": text.one_line(site.function, 1000), "kind": "function"}
        ]
    return location


def _whole_target(report: Report) -> Object:
    target = report.run.target
    file, _, _attribute = target.rpartition(":") if ":" in target else (target, "", "")
    if "/" not in file and not file.endswith((".py", ".gz", ".json", ".pickle")):
        file = file.replace(".", "/") + ".py"
    return {
        "physicalLocation": {"artifactLocation": _artifact(file)},
        "message": {"text": "no single place in the source"},
    }


def _artifact(file: str) -> Object:
    uri = quote(text.path(file).encode("utf-8", "replace"), safe="/")
    if file.startswith("/"):
        return {"uri": f"file://{uri}"}
    return {"uri": uri or ".", "uriBaseId": _ROOT}


# -- fixes -----------------------------------------------------------------------------------------


def _fixes(finding: Finding) -> Iterator[Object]:
    remedy = finding.remedy
    if remedy is None or remedy.diff is None:
        return
    changes: dict[str, list[Object]] = {}
    for replacement in replacements(remedy.diff):
        changes.setdefault(replacement.file, []).append(_replacement(replacement))
    if changes:
        promise = (
            "cannot change training results"
            if remedy.safe
            else "may change training results: review it first"
        )
        yield {
            "description": {
                "text": f"{text.one_line(remedy.text or finding.code, _MESSAGE_LIMIT)} ({promise})"
            },
            "artifactChanges": [
                {"artifactLocation": _artifact(file), "replacements": replaced}
                for file, replaced in changes.items()
            ],
        }


def _replacement(replacement: Replacement) -> Object:
    region = {"startLine": replacement.first, "startColumn": 1}
    if replacement.cut is None:
        region |= {"endLine": replacement.last + 1, "endColumn": 1}
    else:
        region |= {"endLine": replacement.last, "endColumn": replacement.cut + 1}
    return {"deletedRegion": region, "insertedContent": {"text": replacement.text}}


# -- replacements ----------------------------------------------------------------------------------
# A unified diff as replacements of whole lines, for formats that know no diffs.


_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NO_LINE_END = "\\ No newline at end of file"
_ESCAPED = re.compile(r'\\([0-7]{3}|["\\abtnvfr])')
_NAMED = dict(zip("abtnvfr", "\a\b\t\n\v\f\r", strict=True))


@dataclass(frozen=True)
class Replacement:
    """In ``file``, lines ``first`` to ``last`` (1-based; ``last`` is ``first - 1`` for an insertion
    before ``first``) become ``text``.

    ``cut`` is None where the last replaced line ends in a line feed, which is replaced with it;
    else that line's length.
    """

    file: str
    first: int
    last: int
    text: str
    cut: int | None = None


def replacements(diff: str) -> tuple[Replacement, ...]:
    """What the diff changes, in its order. Empty where it is no diff that can be read with
    certainty.
    """
    try:
        return tuple(_read(diff.split("\n")))
    except (ValueError, IndexError):
        return ()


def _read(lines: list[str]) -> Iterator[Replacement]:
    file, at = "", 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("--- "):
            file, at = _path(line), at + 1
        elif hunk := _HUNK.match(line):
            if not file:
                raise ValueError("a hunk without a file")
            end = _end_of(lines, at, int(hunk[2] or 1), int(hunk[3] or 1))
            yield from _changes(file, int(hunk[1]) + (hunk[2] == "0"), lines[at:end])
            at = end
        elif line:
            raise ValueError("neither a header nor a hunk")


def _end_of(lines: list[str], at: int, old: int, new: int) -> int:
    """Where the hunk ends whose body begins at ``at``: counted, because a removed line may look
    like a header.
    """
    while old > 0 or new > 0:
        mark = lines[at][:1]
        if mark not in ("+", "-", " ", "\\"):
            raise ValueError("a hunk that ends too early")
        old -= mark in "- "
        new -= mark in "+ "
        at += 1
    return at + (lines[at] == _NO_LINE_END)


def _path(header: str) -> str:
    name = header[4:].partition("\t")[0]
    if name.startswith('"'):
        name = _ESCAPED.sub(_unescaped, name.strip('"')).encode("latin-1").decode("utf-8")
    if not name.startswith("a/"):
        raise ValueError("a path without its prefix")
    return name[2:]


def _unescaped(match: re.Match[str]) -> str:
    word = match[1]
    return chr(int(word, 8)) if len(word) == 3 else _NAMED.get(word, word)


def _changes(file: str, number: int, body: list[str]) -> Iterator[Replacement]:
    gone: list[str] = []
    come: list[str] = []
    for at, line in enumerate((*body, " ")):
        if line == _NO_LINE_END:
            continue
        bare = at + 1 < len(body) and body[at + 1] == _NO_LINE_END
        if line[:1] == "-":
            gone.append(line[1:] if bare else line[1:] + "\n")
        elif line[:1] == "+":
            come.append(line[1:] if bare else line[1:] + "\n")
        else:
            if gone or come:
                cut = len(gone[-1]) if gone and not gone[-1].endswith("\n") else None
                yield Replacement(file, number, number + len(gone) - 1, "".join(come), cut)
            number += len(gone) + 1
            gone, come = [], []
