"""Lines that read tensors: which patch fits what the line does with the value."""

from dataclasses import replace

import pytest
from auditor.rules.reading import LOG_EVERY, SUMMED, THROTTLED, WRITTEN, patch_of
from auditor.rules.sync.waiting import ScalarReadEveryStep

from auditor.evidence.recorded.reads import Expression, Reads
from auditor.evidence.source.files import Source, Span
from auditor.model import Site
from tests.rules import asking
from tests.rules.asking import ask, read

SITE = Site("train.py", 1, "step", "print(loss.item())")
RULE = ScalarReadEveryStep()


def place(line=1, n=1, library=""):
    """Of a line that reads ``n`` times on each of 12 steps."""
    site, by = replace(SITE, line=line), Expression(via=library)
    return asking.place(*(read(site, step, expression=by, n=n) for step in range(12)))


@pytest.mark.parametrize(
    ("line", "safe", "reason"),
    [
        ("print(loss.item())", True, THROTTLED),
        ("wandb.log({'loss': loss.item()})", True, THROTTLED),
        ("f.write(str(loss.item()))", False, WRITTEN),
    ],
    ids=["screen", "tracker", "file"],
)
def test_a_line_that_only_logs_is_throttled(line, safe, reason):
    edit = patch_of(Source({"train.py": line}), place())
    assert (edit.action, edit.value, LOG_EVERY) == ("throttle", "50", 50)
    assert (edit.safe, edit.reason) == (safe, reason)


@pytest.mark.parametrize(("line", "n"), [("print(loss.item())", 2), ("y = f(loss.item())", 1)])
def test_only_a_line_that_runs_once_in_a_step_and_logs_is_throttled(line, n):
    assert patch_of(Source({"train.py": line}), place(n=n)) is None


def test_a_line_that_sums_adds_tensors():
    source = Source({"train.py": ADDED.format(below="pass")})
    edit = patch_of(source, place(line=2))
    wanted = ("rename_call", "detach()", False, SUMMED)
    assert (edit.action, edit.value, edit.safe, edit.reason) == wanted


def test_the_advice_of_a_library_is_another():
    assert RULE.instead(place()) == RULE.advice
    assert "inside lib.py:f, which is not yours" in RULE.instead(place(library="lib.py:f"))


def reads(*numbers):
    rows = tuple(
        read(SITE, step, expression=Expression(text="x"), n=n, us=5.0)
        for step, n in enumerate(numbers)
    )
    return Reads("cuda", len(numbers), rows)


def test_a_line_that_reads_twice_in_a_step_is_told():
    source = Source({"train.py": SITE.text})
    (once,), (twice,) = (ask(RULE, reads(*n), source) for n in ([1] * 10, [*[1] * 9, 2]))
    assert (bool(once.remedy.edits), bool(twice.remedy.edits)) == (True, False)
    assert (once.steps, once.per_step, once.lost_us_per_step) == (10, 1.0, 5.0)
    assert twice.per_step == 1.1


ADDED = """\
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
    text = ADDED.format(below=below)
    lines, rows = text.split("\n"), []
    for number, what in ((2, "loss.item()"), (3, below.partition("(")[2][:-1]), (5, "loss.item()")):
        at = lines[number - 1].index(what)
        span = Span(number, number, at, at + len(what))
        site = Site("train.py", number, "", lines[number - 1].strip())
        rows += [
            read(site, step, expression=Expression(span=span), us=5.0)
            for step in range(steps if number == 3 else 12)
        ]
    source = Source({"train.py": text})
    found = next(iter(ask(RULE, Reads("cuda", 12, tuple(rows)), source)))
    remedy = found.remedy
    assert bool(remedy.edits) is (line is None)
    assert (remedy.refused is None) is (line is None)
    if line:
        assert "line 3, `history.append(loss.item())`, reads the same value" in remedy.refused
