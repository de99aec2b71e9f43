"""What `make same` calls a difference between two reports."""

from benchmarks.same.__main__ import differences


def report(*findings, **verdicts):
    return {
        "findings": list(findings),
        "verdicts": [{"code": code, "status": status} for code, status in verdicts.items()],
    }


def finding(code="SYNC001", line=3, us=None, between=(None, None), basis="measured"):
    return {
        "code": code,
        "severity": "warning",
        "site": {"file": "train.py", "line": line},
        "lost_us_per_step": us,
        "lost_us_per_step_low": between[0],
        "lost_us_per_step_high": between[1],
        "lost_bytes": None,
        "basis": basis,
    }


def said(before, after, exact=True):
    return [each.split(":")[0] for each in differences(before, after, exact=exact)]


def test_what_is_the_same_is_silent():
    one = report(finding(us=5.0, between=(4.0, 6.0)), SYNC001="found")
    assert said(one, one) == said(one, one, exact=False) == []
    assert said({}, {}) == ["no report before and after"]


def test_a_finding_that_comes_goes_or_moves_is_named():
    assert said(report(finding()), report()) == ["gone  warning SYNC001 train.py"]
    assert said(report(finding()), report(finding(line=4))) == [
        "gone  warning SYNC001 train.py",
        "new   warning SYNC001 train.py",
    ]
    assert said(report(), {}) == ["no report after"]


def test_prices_are_equal_in_what_is_frozen_and_meet_in_what_is_live():
    old, new = finding(us=5.0, between=(4.0, 6.0)), finding(us=5.5, between=(5.0, 7.0))
    far = finding(us=9.0, between=(8.0, 9.5))
    assert said(report(old), report(new)) == ["price warning SYNC001 train.py"]
    assert said(report(old), report(new), exact=False) == []
    assert said(report(old), report(far), exact=False) == ["price warning SYNC001 train.py"]
    assert said(report(old), report(finding(us=5.0, basis="estimated")), exact=False)


def test_a_verdict_that_changes_is_named_in_what_is_frozen():
    assert said(report(KERN006="clean"), report(KERN006="skipped")) == ["verdict KERN006"]
    assert said(report(KERN006="clean"), report(KERN006="skipped"), exact=False) == []
