"""Mixed precision as it ran: events by place, scale updates, which dtypes."""

from __future__ import annotations

import pytest

from auditor.evidence.recorded.amp import Amp
from auditor.model import Site
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, quiet, steps
from tests.rules.asking import rescaled

SITE = Site("trainer.py", 1)


def test_events_and_updates_of_completed_loud_steps(seen):
    rows = [
        loud(0, at=1, what="autocast", dtype="float16", n=2),
        loud(1, at=0, what="scale", n=3),
        loud(2, at=1, what="scale", n=1),
        loud(0, at=1, what="scale", n=4),
        loud(4, at=0, what="scale", n=90),
        quiet(0, at=0, what="scale", n=90),
        loud(1, at=0, what="update", before=4.0, after=2.0),
        loud(2, at=0, what="update", before=2.0, after=2.0),
        loud(2, at=0, what="update", before=2.0),
        loud(2, at=0, what="update", after=2.0),
    ]
    table = seen(sites=[6, 4], steps=steps(4), amp=rows).get(Amp)
    assert (table.steps, len(table.events)) == (4, 4)
    assert (table.events[0].dtype, table.events[0].n) == ("float16", 2)
    first, second = table.lines("scale")
    assert (first.site.line, first.per_step, first.pattern.seen) == (4, 1.25, (0, 2))
    assert (second.site.line, second.per_step, second.pattern.seen) == (6, 0.75, (1,))
    assert [(each.step, each.before, each.after) for each in table.updates] == [
        (1, 4.0, 2.0),
        (2, 2.0, 2.0),
    ]
    assert [each.step for each in table.skipped] == [1]


@pytest.mark.parametrize(("after", "skipped"), [(1.9, True), (2.0, False), (4.0, False)])
def test_a_lower_scale_means_a_skipped_step(after, skipped):
    assert bool(Amp(updates=(rescaled(SITE, 0, 2.0, after),)).skipped) is skipped


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("step() has already been called since the last update().", 3),
        ("unscale_() has already been called since the last update().", None),
        ("something else", None),
    ],
)
def test_a_run_that_a_missing_update_ended(seen, home, recorded, message, line):
    error = {"message": message, "file": f"{home}/trainer.py", "line": 3, "function": "step"}
    parts = {"steps": steps(1), "amp": []} if recorded else {}
    evidence = seen(manifest={"error": error, "outcome": "raised"}, **parts)
    if line is None and not recorded:
        with pytest.raises(NotLooked, match="ended early"):
            evidence.get(Amp)
        return
    site = evidence.get(Amp).not_updated
    assert (site and site.line) == line
