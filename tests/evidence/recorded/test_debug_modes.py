"""Anomaly mode: in which pass and on which steps, who switched it on, how many checks it makes."""

import pytest
from auditor.rules.num.num009_anomaly_mode import ENGINE, DebugModes

from auditor.model import Site
from tests.evidence.recorded.rows import loud, quiet, steps
from tests.rules.asking import anomaly


def test_the_quiet_pass_counts_where_there_is_one(seen):
    rows = [
        quiet(0, what="anomaly", at=0, n=2),
        quiet(2, what="anomaly", at=None, n=1),
        quiet(1, what="other", at=0, n=8),
        loud(0, what="anomaly", at=0, n=50),
    ]
    places = [(4, {"via": "lightning/pytorch/trainer.py:fit"})]
    both = seen(sites=places, steps=steps(4, "quiet") + steps(2), modes=rows).get(DebugModes)
    assert (both.steps, both.anomaly_backwards, both.anomaly_rhythm.seen) == (4, 0.75, (0, 2))
    assert (both.anomaly_site.line, both.checks) == (4, None)
    assert both.anomaly_library == places[0][1]["via"]


def test_without_a_quiet_step_the_loud_pass_counts(seen):
    rows = [quiet(0, what="anomaly", at=0, n=2), loud(1, what="anomaly", at=0, n=3)]
    table = seen(sites=[4], steps=steps(2), modes=rows).get(DebugModes)
    assert (table.steps, table.anomaly_backwards, table.anomaly[0].step) == (2, 1.5, 1)


def test_the_site_is_that_of_most_steps():
    one, two = Site("trainer.py", 1), Site("trainer.py", 2)
    by = (one, two, two, None, None, None)
    table = DebugModes(6, tuple(anomaly(step, site, "b") for step, site in enumerate(by)))
    assert table.anomaly_site == two
    empty = DebugModes(0, ())
    assert (empty.anomaly_site, empty.anomaly_library, empty.anomaly_backwards) == (None, "", 0.0)


@pytest.mark.parametrize(("completed", "checks"), [(2, 2.5), (0, None)])
def test_checks_are_counted_in_a_rehearsal(seen, completed, checks):
    reads = [
        loud(0, at=0, kind="item", n=3),
        loud(1, at=0, kind="item", n=2),
        loud(1, at=1, kind="item", n=70),  # the program's own
        loud(1, at=0, kind="tolist", n=70),
        quiet(1, at=0, kind="item", n=70),
    ]
    places = [(4, {"via": ENGINE}), 5]
    parts = {"sites": places, "steps": steps(completed), "reads": reads, "modes": []}
    assert seen(device="rehearse", **parts).get(DebugModes).checks == checks


def test_checks_are_those_of_the_rehearsal_inside(seen):
    reads = [loud(0, at=0, kind="item", n=4)]
    rehearsed = {"sites": [(4, {"via": ENGINE})], "steps": steps(2), "reads": reads}
    seen(device="rehearse", inside="rehearsal", **rehearsed)
    assert seen(device="cpu", steps=steps(1), modes=[]).get(DebugModes).checks == 2.0
