"""Lines that read tensors: which patch fits what the line does with the value."""

from dataclasses import replace

import pytest
from auditor.rules.reading import SUMMED, patch_of
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


def test_a_line_that_sums_adds_tensors():
    source = Source({"train.py": ADDED.format(below="pass")})
    edit = patch_of(source, place(line=2))
    wanted = ("rename_call", "detach()", False, SUMMED)
    assert (edit.action, edit.value, edit.safe, edit.reason) == wanted


def reads(*numbers):
    rows = tuple(
        read(SITE, step, expression=Expression(text="x"), n=n, us=5.0)
        for step, n in enumerate(numbers)
    )
    return Reads("cuda", len(numbers), rows)


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
