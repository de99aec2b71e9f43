"""Lines that read tensors: which patch fits what the line does with the value."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.reading import LOG_EVERY, THROTTLED, WRITTEN, ReadHints, ReadingRule
from auditor.rules.sync.waiting import ScalarReadEveryStep

from auditor.evidence.recorded.reads import Read, Reads
from auditor.evidence.source.files import Source, Span
from auditor.evidence.source.read_purpose import Expression
from auditor.model import Finding, Site
from tests.rules.asking import ask

SITE = Site("train.py", 1, "step", "print(loss.item())")
RULE = ScalarReadEveryStep()


def finding(**hints):
    return Finding(SITE, "a read", hints=replace(ReadHints(once=True), **hints))


@pytest.mark.parametrize(
    ("kind", "safe", "reason"),
    [("screen", True, THROTTLED), ("tracker", True, THROTTLED), ("file", False, WRITTEN)],
)
def test_a_line_that_only_logs_is_throttled(kind, safe, reason):
    (edit,) = RULE.patch_of(finding(logs=kind))
    assert (edit.action, edit.value, LOG_EVERY) == ("throttle", "50", 50)
    assert (edit.safe, edit.reason) == (safe, reason)


def test_a_line_that_sums_adds_tensors_and_others_have_no_patch():
    (edit,) = RULE.patch_of(finding(logs=None, summed=(1, 1, 0, 4)))
    assert (edit.action, edit.value, edit.span, edit.safe) == (
        "rename_call",
        "detach()",
        (1, 1, 0, 4),
        False,
    )
    assert RULE.patch_of(finding(logs=None, summed=None)) == ()
    assert RULE.patch_of(replace(finding(logs="screen"), site=None)) == ()


@pytest.mark.parametrize(
    ("text", "once", "logs"),
    [
        ("print(loss.item())", True, "screen"),
        ("print(loss.item())", False, None),
        ("y = f(loss.item())", True, None),
    ],
)
def test_only_a_line_that_runs_once_in_a_step_is_throttled(text, once, logs):
    (found,) = RULE.less_often([finding(once=once)], Source({"train.py": text}))
    hints = found.hints_as(ReadHints)
    assert (hints.logs, hints.summed) == (logs, None)
    (nowhere,) = RULE.less_often([replace(finding(), site=None)], Source())
    assert nowhere.hints_as(ReadHints) == ReadHints(once=True)


def test_the_advice_of_a_library_is_another():
    assert ReadingRule.advice_for(finding(), "own") == "own"
    assert "inside lib.py:f, which is not yours" in ReadingRule.advice_for(
        finding(library="lib.py:f"), "own"
    )


def reads(*numbers):
    rows = tuple(
        Read(SITE, "item", "scalar", step, n, 5.0, 1, "cuda:0", expression=Expression(text="x"))
        for step, n in enumerate(numbers)
    )
    return Reads("cuda", len(numbers), rows)


def test_a_line_that_reads_twice_in_a_step_is_told():
    (once,), (twice,) = ask(RULE, reads(*[1] * 10)), ask(RULE, reads(*[1] * 9, 2))
    assert (once.hints.once, twice.hints.once) == (True, False)
    assert (once.steps, once.per_step, once.lost_us_per_step) == (10, 1.0, 5.0)
    assert twice.per_step == 1.1


SUMMED = """\
for i, x in enumerate(loader):
    total += loss.item()
    {below}
    loss = None
    history.append(loss.item())
print(total)
"""


@pytest.mark.parametrize(
    ("below", "steps", "line"),
    [
        ("history.append(loss.item())", 12, 3),
        ("history.append(loss.item())", 5, None),  # on few of the steps
        ("history.append(other.item())", 12, None),
        ("print(loss.item())", 12, None),  # has a patch, too
    ],
)
def test_the_line_that_would_wait_in_the_place_of_a_sum(below, steps, line):
    text = SUMMED.format(below=below)
    lines, rows = text.split("\n"), []
    for number, read in ((2, "loss.item()"), (3, below.partition("(")[2][:-1]), (5, "loss.item()")):
        at = lines[number - 1].index(read)
        span = Span(number, number, at, at + len(read))
        site = Site("train.py", number, "", lines[number - 1].strip())
        rows += [
            Read(
                site, "item", "scalar", step, 1, 5.0, 1, "cuda:0", expression=Expression(span=span)
            )
            for step in range(steps if number == 3 else 12)
        ]
    source = Source({"train.py": text})
    found = next(iter(ask(RULE, Reads("cuda", 12, tuple(rows)), source)))
    below_it = found.hints_as(ReadHints).below
    remedy = RULE.remedy(found)
    assert (below_it and below_it.line) == line
    assert bool(remedy.edits) is (line is None)
    assert (remedy.refused is None) is (line is None)
    if line:
        assert "line 3, `history.append(loss.item())`, reads the same value" in remedy.refused
