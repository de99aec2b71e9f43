"""Generators from which workers drew alike: which line makes them."""

from __future__ import annotations

import pytest
from auditor.rules.data.repeated_draws import RepeatedDraws

from tests.evidence.recorded.rows import loud, steps

MADE = """class Rows:
    def __init__(self):
        self.rng = {made}
loader = DataLoader(Rows(), num_workers=2)
"""


def table(seen, text, name):
    row = loud(11, loader=3, name=name, kind="random.Random", workers=[0, 2], owner="make.Rows")
    loaders = [{"loader": 3, "made_at": 0}]
    return seen(text, sites=[4], draws=[row], loaders=loaders, batches=[], steps=steps(3))


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        (MADE.format(made="np.random.default_rng(3)"), "dataset.rng", 3),
        (MADE.format(made="random.Random(3) if seed else None"), "dataset.parts[0].rng", 3),
        (MADE.format(made="torch.Generator().manual_seed(1)"), "rows.dataset.rng", 3),
        (MADE.format(made="rng"), "dataset.rng", 4),
        (MADE.format(made="random.Random(3)"), "dataset.other", 4),
        (MADE.format(made="random.Random(3)") + "rng = random.Random(4)\n", "dataset.rng", 3),
        (MADE.format(made="random.Random(3)").replace("Rows:", "Other:"), "dataset.rng", 4),
        (MADE.format(made="random.Random(3)") * 2, "dataset.rng", 4),
    ],
)
def test_the_line_that_makes_it_or_the_loaders(seen, text, name, line):
    (each,) = table(seen, text, name).get(RepeatedDraws).found
    assert (each.site.line, each.loader.number, each.workers) == (line, 3, (0, 2))
