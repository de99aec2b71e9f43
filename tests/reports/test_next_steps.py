"""What the page and the terminal say to do next."""

from dataclasses import replace

import pytest
from auditor.reports import next_steps, renderer

from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.sections import Verification, Verified
from tests.reports import golden_report as golden

DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x\n+y\n"


def edit(*, safe=True):
    return replace(next(iter(edits())), safe=safe)


def edits():
    for finding in golden.rich_report().findings:
        if finding.remedy is not None:
            yield from finding.remedy.edits


def found(code, number, remedy, severity=Severity.WARNING):
    site = Site("train.py", number, "step", "x")
    return Finding(site, "says", code=code, key=f"k{number}", severity=severity, remedy=remedy)


WORDS = Remedy("Do something else.")
SAFE = Remedy("Drop it.", edits=(edit(),), diff=DIFF)
UNSAFE = Remedy("Change it.", edits=(edit(safe=False),), diff=DIFF)


def report(*findings, **more):
    return replace(golden.silent_report(), findings=findings, **more)


def commands(made, folder="audits/one"):
    return {each.line(folder): each.does for each in next_steps.commands(made)}


def test_commands_name_what_there_is():
    said = commands(
        report(found("A001", 1, SAFE), found("A002", 2, UNSAFE), found("A003", 3, SAFE))
    )
    assert list(said) == [
        "audit fix audits/one",
        "audit fix audits/one --apply",
        "audit fix audits/one --unsafe",
        "audit verify audits/one",
    ]
    assert said["audit fix audits/one"] == "prints 2 safe patches (A001, A003)"
    assert said["audit fix audits/one --unsafe"].startswith("also prints 1 patch (A002), which")


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ("A001 A001 A002", "prints 3 safe patches (A001, A002)"),
        ("A001 A002 A003 A004", "prints 4 safe patches"),
    ],
)
def test_safe_patches_are_named_up_to_three_rules(codes, said):
    made = report(*(found(code, line, SAFE) for line, code in enumerate(codes.split(), 1)))
    assert commands(made)["audit fix audits/one"] == said


@pytest.mark.parametrize(
    ("remedy", "expected"),
    [
        (None, []),
        (WORDS, []),
        (SAFE, ["audit fix F", "audit fix F --apply", "audit verify F"]),
        (UNSAFE, ["audit fix F --unsafe", "audit verify F --unsafe"]),
    ],
    ids=["nothing", "words", "safe", "unsafe"],
)
def test_nothing_is_offered_that_would_do_nothing(remedy, expected):
    assert list(commands(report(found("A001", 1, remedy)), "F")) == expected


def test_what_was_tried_or_cannot_be_tried_is_not_offered_again():
    one = found("A001", 1, SAFE)
    verified = Verification(None, (), None, repeatable=True, runs=2, steps=50, seconds=9.0)
    assert "audit verify F" not in commands(report(one, verification=verified), "F")
    failed = replace(golden.silent_report().run, outcome="raised")
    assert "audit verify F" not in commands(report(one, run=failed), "F")
    ranks = replace(golden.silent_report().run, world_size=2)
    assert "audit verify F" not in commands(report(one, run=ranks), "F")


def test_what_was_audited_in_its_own_process_is_told_what_would_measure_it():
    own = replace(golden.silent_report().run, in_process=True)
    made = report(found("A001", 1, SAFE), run=own)
    assert list(commands(made, "F")) == ["audit fix F", "audit fix F --apply"]
    page = str(renderer("html").render(made))
    assert "audit verify cannot measure the patches" in page
    assert "audit run module:function" in page
    assert next_steps.unmeasured(report(found("A001", 1, WORDS), run=own)) == ""
    assert next_steps.unmeasured(report(found("A001", 1, SAFE))) == ""


def test_a_patch_that_broke_the_training_is_not_offered():
    broken = next(
        each.verified for each in golden.rich_report().findings if each.verified is not None
    )
    made = report(replace(found("A001", 1, SAFE), verified=replace(broken, status="broken")))
    assert isinstance(broken, Verified)
    assert commands(made) == {}
    assert next_steps.steps(made)[0].patch == ""


def test_fixes_of_one_text_without_a_price_or_a_patch_are_one_step():
    alike = [found("A001", number, WORDS) for number in (1, 2, 3, 4)]
    priced = replace(found("A001", 5, WORDS), lost_us_per_step=2000.0, basis="measured")
    made = next_steps.steps(report(*alike, priced, found("A002", 6, WORDS)))
    assert [each.place for each in made] == [
        "train.py:5",
        "train.py:1, train.py:2, train.py:3 and 1 more",
        "train.py:6",
    ]
    assert [bool(each.price) for each in made] == [True, False, False]
    assert {each.said for each in made} == {"says"}
