"""GitHub annotations: workflow commands that put each finding at its line of a pull request."""

from collections.abc import Iterator

from auditor.model import Finding, Report, Severity

from . import headline, summary, text

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_MESSAGE_LIMIT = 2000


class Github:
    """One command a finding, in the report's order: GitHub shows ten of each level in a step."""

    name = "github"
    suffix = ".txt"

    def render(self, report: Report) -> str:
        """The commands, one a line, after what to know first and before how the target ended if not
        well. Nothing of a stranger's can begin a command.
        """
        return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: Report) -> Iterator[str]:
    for caveat in report.caveats:
        yield _command("error", {"title": "audit"}, caveat)
    for caution in report.cautions:
        yield _command("warning", {"title": "audit"}, caution)
    for finding in report.findings:
        if summary.accepted(finding):
            continue
        yield _command(
            _COMMANDS[summary.severity(finding)], _properties(finding), _message(finding)
        )
    if report.run.outcome != "completed":
        error = report.run.error
        said = f": {error.type}: {error.message}" if error else ""
        yield _command("error", {"title": "audit"}, f"{summary.outcome(report)}{said}")
    for sentence in summary.baseline_sentences(report):
        yield _command("notice", {"title": "audit"}, sentence)
    if not report.findings:
        yield _command("notice", {"title": "audit"}, headline.headline(report)[0])


def _properties(finding: Finding) -> dict[str, str]:
    properties = {"title": f"{finding.code} {finding.name}"}
    if finding.site is None:
        return properties
    place = {"file": finding.site.file} | (
        {"line": str(finding.site.line)} if finding.site.line > 0 else {}
    )
    return place | properties


def _message(finding: Finding) -> str:
    price = summary.price(finding)
    words = [finding.message, f"Costs {price}." if price else ""]
    words.append(finding.remedy.text if finding.remedy is not None else "")
    return "\n".join(text.one_line(word, _MESSAGE_LIMIT) for word in words if word)


def _command(command: str, properties: dict[str, str], message: str) -> str:
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{command} {said}::{_data(text.shorten(text.visible(message), 2 * _MESSAGE_LIMIT))}"


def _property(value: str) -> str:
    return _data(text.path(value)).replace(":", "%3A").replace(",", "%2C")


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
