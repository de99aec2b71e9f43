"""Mixed precision as it ran: events by place, scale updates, which dtypes."""

import pytest

from auditor.evidence.recorded.amp import Amp
from auditor.model import Site
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import steps
from tests.rules.asking import rescaled

SITE = Site("trainer.py", 1)


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
