"""Findings as a table."""

import pytest
from auditor.reports import frames

from auditor.model import Severity
from tests.reports import golden_report as golden

pd = pytest.importorskip("pandas")


def test_a_row_for_each_finding_in_the_order_of_the_report():
    report = golden.rich_report()
    table = frames.findings(report)
    assert list(table.code) == [finding.code for finding in report.findings]
    assert list(table.columns) == list(frames.COLUMNS)
    for (_, row), finding in zip(table.iterrows(), report.findings, strict=True):
        assert row.severity == (finding.severity or Severity.NOTE).value
        if finding.site is None:
            assert row.file is pd.NA
            assert row.line is pd.NA
        else:
            assert (row.file, row.line) == (finding.site.file, finding.site.line)
        if finding.lost_us_per_step is None:
            assert row.us_per_step is pd.NA
        else:
            assert row.us_per_step == finding.lost_us_per_step
        assert row.has_patch == bool(finding.remedy and finding.remedy.diff)
        assert row.safe_patch <= row.has_patch


def test_what_is_priced_can_be_summed_by_file():
    report = golden.rich_report()
    priced = [f for f in report.findings if f.site and f.lost_us_per_step is not None]
    assert priced
    sums = frames.findings(report).groupby("file").us_per_step.sum()
    for file in {f.site.file for f in priced}:
        expected = sum(f.lost_us_per_step for f in priced if f.site.file == file)
        assert sums[file] == pytest.approx(expected)
