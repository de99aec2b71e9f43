"""The head of the page where memory ran out, and where checkpoints were scanned."""

import re
from dataclasses import replace

import pytest
from auditor.reports import outcomes, renderer

from auditor.model.sections import RanOut, SavedCheckpoint
from tests.reports import golden_report as golden

MIB = 1 << 20
SHORT = RanOut(200 * MIB, 159 * MIB, 168 * MIB, 4 * MIB, 20 * MIB, 7 * MIB, 13 * MIB)


def report(found, **more):
    silent = golden.silent_report()
    return replace(silent, run=replace(silent.run, outcome="oom"), ran_out=found, **more)


def words(made, begin, end="</section>"):
    page = str(renderer("html").render(made))
    part = page[page.index(begin) :]
    return " ".join(re.sub(r"<[^>]+>", " ", part[: part.index(end)]).split())


def test_what_is_not_known_is_left_out():
    bare = RanOut(None, 2 * MIB, 3 * MIB, None, None, None, None)
    assert [told.name for told in outcomes.shortage(report(bare))] == ["In use"]
    assert outcomes.fits(report(bare)) == ()
    assert outcomes.shortage(golden.silent_report()) == ()
    assert outcomes.fits(golden.silent_report()) == ()


@pytest.mark.parametrize(
    ("fits", "tried", "said"),
    [
        ((), 0, ()),
        ((), 4, ("None of 4 replayed allocator settings makes it fit: the step must hold less",)),
        (("a:1", "b:2"), 4, ("A replay of the same allocations fits with `a:1` or `b:2`",)),
    ],
)  # fmt: skip
def test_what_would_have_fitted(fits, tried, said):
    assert outcomes.fits(report(replace(SHORT, fits=fits, tried=tried))) == said


FILES = (
    SavedCheckpoint("a.pt", good=True, said="step 1"),
    SavedCheckpoint("b<i>.pt", good=True, said="step 2", latest=True),
    SavedCheckpoint("c.pt", good=False, said="step 3"),
    SavedCheckpoint("d.pt", good=False, said="step 4", verdict="refused"),
    SavedCheckpoint("e.pt", good=False, said="step 5", verdict="not looked at"),
)
