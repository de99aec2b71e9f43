"""A report as the installed rules judge its recording now. What is patched or run comes from there:
of a report, which may be a stranger's, nothing but texts are taken.
"""

from dataclasses import replace

from auditor.cli import rule_selection
from auditor.evidence.table import Evidence
from auditor.judging import catalogue
from auditor.model import Report
from auditor.recordings.folder import Recording


def judged_again(report: Report, recording: Recording) -> Report:
    """The report with today's edits and diffs for its findings; what was measured is kept."""
    known = {rule.code for rule in catalogue.rules()}
    told = {key: finding for finding in report.findings for key in finding.keys}
    codes = {code for finding in report.findings for code in finding.codes} & known
    if not codes:
        return replace(report, findings=())
    choice = rule_selection.choose(tuple(sorted(codes)), (), allow_broken_rules=True)
    found = choice.judged(Evidence(recording)).findings
    return replace(
        report,
        findings=tuple(
            replace(finding, verified=told[finding.key].verified)
            for finding in found
            if finding.key in told
        ),
    )
