"""SARIF 2.1.0: findings for code scanning. Patches are in report.json and fixes.patch."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from auditor.model import Finding, FoundAt, Report, Severity, Site, Verdict
from auditor.model.prices import priced

from . import summary, text

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
        """Indented JSON in ASCII: other characters, and what steers a terminal, are escaped."""
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
    """One verdict for each code, also for codes of findings for which the report has none."""
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
        "properties": {"tags": [text.one_line(summary.family_of(verdict.code), 200)]},
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
    whole = report.run.outcome == _ENDED_WELL and report.run.training != "nothing"
    ended: Object = {
        "executionSuccessful": whole and not summary.with_status(report, "failed"),
        "toolExecutionNotifications": [*_failures(report)],
        "toolConfigurationNotifications": [*_limits(report)],
    }
    error = report.run.error
    if error is not None:
        said = f"{summary.outcome(report)}: {error.type}: {error.message}"
        ended["toolExecutionNotifications"].append(_notification("error", said))
    return ended


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
    return result


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
        "cost": summary.short_price(finding),
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
