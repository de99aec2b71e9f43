"""Findings as the message of a test that fails: line, price and patch of each."""

from collections.abc import Iterable, Iterator

from auditor.model import Finding

from . import summary, text

_MOST = 10
_WORDS = 1000
_DIFF_LINES = 40


def told(findings: Iterable[Finding]) -> str:
    """The whole message, in plain text without what steers a terminal."""
    findings = tuple(findings)
    lines = [line for finding in findings[:_MOST] for line in _finding(finding)]
    if len(findings) > _MOST:
        lines.append(f"and {len(findings) - _MOST} more")
    return "\n".join(lines)


def line(finding: Finding) -> str:
    """Place, severity, code and message, as compilers say it (ci/problem-matcher.json reads it)."""
    where = text.path(str(finding.site)) if finding.site else "(no place in the source)"
    level, code = summary.severity(finding).value, text.one_line(finding.code, 40)
    return f"{where}: {level} {code}: {text.one_line(finding.message, _WORDS)}"


def _finding(finding: Finding) -> Iterator[str]:
    yield line(finding)
    if finding.site is not None and finding.site.text:
        yield f"    {text.one_line(finding.site.text, 200)}"
    yield f"  price: {summary.price(finding) or summary.unpriced(finding)}"
    remedy = finding.remedy
    if remedy is None:
        return
    if remedy.text:
        yield f"  remedy: {text.one_line(remedy.text, _WORDS)}"
    if remedy.diff:
        yield f"  patch ({'safe' if remedy.safe else 'needs your judgement'}):"
        yield from (f"    {line}" for line in text.tail_lines(remedy.diff, _DIFF_LINES))
