"""JUnit XML: a test case for each rule, as CI systems list them."""

import xml.etree.ElementTree as ET
from collections.abc import Callable

from auditor.model import Finding, Report, Verdict

from . import summary, text

_NAME_LIMIT = 300
_TEXT_LIMIT = 4000


class Junit:
    """``found`` is a failure, ``skipped`` skipped, a rule that broke an error, ``clean`` passed. So
    is the target itself a case.

    Rules that found something come first, in the order of their costliest finding.
    """

    name = "junit"
    suffix = ".xml"

    def render(self, report: Report) -> str:
        """The document. Characters that XML cannot hold, or that steer a terminal, are escaped."""
        suite = ET.Element(
            "testsuite",
            name=_name(f"audit of {report.run.target}"),
            timestamp=_name(report.run.recorded_at),
        )
        suite.append(_target(report))
        for verdict in sorted(report.verdicts, key=_by_price(report)):
            suite.append(_case(report, verdict))
        for tag, attribute in (
            ("failure", "failures"),
            ("error", "errors"),
            ("skipped", "skipped"),
        ):
            suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
        suite.set("tests", str(len(suite)))
        if limits := (*report.cautions, *report.warnings):
            ET.SubElement(suite, "system-err").text = _text("\n".join(map(_name, limits)))
        whole = ET.Element(
            "testsuites", {key: value for key, value in suite.attrib.items() if key != "timestamp"}
        )
        whole.append(suite)
        ET.indent(whole)
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(whole, "unicode")}\n'


def _by_price(report: Report) -> Callable[[Verdict], int]:
    places: dict[str, int] = {}
    for number, finding in enumerate(report.findings):
        for code in finding.codes:
            places.setdefault(code, number)
    return lambda verdict: places.get(verdict.code, len(report.findings))


def _target(report: Report) -> ET.Element:
    case = ET.Element("testcase", classname="audit", name=_name(f"the target: {report.run.target}"))
    if report.run.outcome != "completed":
        error = report.run.error
        message = f"{error.type}: {error.message}" if error else summary.outcome(report)
        said = ET.SubElement(case, "error", message=_name(message), type=report.run.outcome)
        said.text = "\n".join(text.tail_lines(error.traceback, 60)) if error else None
    elif report.run.training == "nothing":
        message = report.caveats[0] if report.caveats else "the target trained nothing"
        ET.SubElement(case, "error", message=_name(message), type="nothing trained")
    return case


def _case(report: Report, verdict: Verdict) -> ET.Element:
    family = f"audit.{summary.family_of(verdict.code)}"
    case = ET.Element(
        "testcase", classname=_name(family), name=_name(f"{verdict.code} {verdict.name}")
    )
    if verdict.status == "found":
        found = [finding for finding in report.findings if verdict.code in finding.codes]
        accepted = [finding for finding in found if summary.accepted(finding)]
        if len(accepted) < len(found) or not found:
            _add_failure(case, [each for each in found if not summary.accepted(each)])
        if accepted:
            known = "in the baseline:\n" + "\n\n".join(map(_full_text, accepted))
            ET.SubElement(case, "system-out").text = _text(known)
    elif verdict.status == "skipped":
        ET.SubElement(case, "skipped", message=_name(verdict.reason))
    elif verdict.status == "failed":
        error = ET.SubElement(
            case,
            "error",
            message=_name(verdict.reason.strip().rpartition("\n")[2]),
            type="rule failed",
        )
        error.text = _text(verdict.reason)
    return case


def _add_failure(case: ET.Element, findings: list[Finding]) -> None:
    first = findings[0] if findings else None
    message = _described(first) if first else "found"
    if len(findings) > 1:
        message += f" (and {len(findings) - 1} more)"
    kind = min(
        (summary.severity(finding) for finding in findings),
        key=lambda severity: severity.rank,
        default=None,
    )
    failure = ET.SubElement(
        case, "failure", message=_name(message), type=kind.value if kind else "found"
    )
    failure.text = _text("\n\n".join(_full_text(finding) for finding in findings))
    if first is not None and first.site is not None:
        case.set("file", text.path(first.site.file))
        case.set("line", str(first.site.line))


def _described(finding: Finding) -> str:
    place = f"{text.path(str(finding.site))}: " if finding.site else ""
    return f"{place}{text.one_line(finding.message, _TEXT_LIMIT)}"


def _full_text(finding: Finding) -> str:
    price = summary.price(finding)
    lines = [
        f"{summary.severity(finding).value}: {_described(finding)}",
        f"cost: {price}" if price else "",
    ]
    lines += [
        f"  {text.one_line(label, 200)}: {text.one_line(value, 500)}"
        for label, value in finding.facts
    ]
    if finding.remedy is not None and finding.remedy.text:
        lines.append(f"remedy: {text.one_line(finding.remedy.text, _TEXT_LIMIT)}")
    return "\n".join(line for line in lines if line)


def _name(words: str) -> str:
    return text.one_line(words, _NAME_LIMIT)


def _text(words: str) -> str:
    return text.shorten(text.visible(words), 50_000)
