"""Anomaly mode: in which pass and on which steps, and who switched it on."""

from auditor.rules.num.backward import DebugModes

from auditor.model import Site
from tests.evidence.recorded.rows import loud, quiet, steps
from tests.rules.asking import anomaly


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
