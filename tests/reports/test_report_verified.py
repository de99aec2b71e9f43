"""What re-runs measured, the same on every page: headline, findings, noise floor, what is left."""

from dataclasses import replace

import pytest
from auditor.reports import verified

from auditor.model.sections import Verification, Verified
from tests.reports import golden_report as golden

FASTER = 38_240.0, 20_900.0, 0.546, 0.532, 0.559, 1000 << 20, 590 << 20
BETTER = Verified("better", *FASTER, True, 5, 4.0, 1.0, "bit-identical")
UNTIMED = Verified(
    "same", None, None, None, None, None, None, None, True, 1, 4.0, 4.0, "checked in the rehearsal"
)
WRONG = {"same_result": False, "pairs": 1, "note": "loss 2 is 0.6 instead of 0.5"}
BROKEN = Verified("broken", 10.0, 9.0, None, None, None, **WRONG)
SUMMARY = Verification(
    BETTER, ("SYNC001", "GRAPH001"), (0.98, 1.03), True, 23, 14, 117.0, ("GRAPH002: left out",)
)


def report_of_re_runs():
    whole = golden.rich_report()
    measured = zip(whole.findings, [BETTER, UNTIMED, BROKEN], strict=False)
    findings = [replace(finding, verified=each) for finding, each in measured]
    return replace(whole, findings=(*findings, *whole.findings[3:]), verification=SUMMARY)


@pytest.mark.parametrize("together", [None, BROKEN, UNTIMED])
def test_without_a_measured_whole_there_is_no_such_headline(together):
    summary = replace(SUMMARY, together=together)
    assert verified.banner(replace(report_of_re_runs(), verification=summary)) == ()


def test_no_bars_where_no_time_was_measured():
    bars = verified.proof(UNTIMED)
    assert (bars.before, bars.after) == (0.0, 0.0)
