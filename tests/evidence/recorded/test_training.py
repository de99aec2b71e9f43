"""Whether anything was trained: each state, and the sentence that it gives."""

import pytest

from auditor.evidence.recorded.steps import Trained
from tests.evidence.recorded.rows import steps


@pytest.mark.parametrize(
    ("sign", "watched", "operators", "graphs", "state", "said"),
    [
        ("optimizer", 3, 0, 0, "trained", ""),
        ("", 3, 0, 0, "nothing", "no operator of torch ran in 3 watched steps"),
        ("", 1, 0, 0, "nothing", "no operator of torch ran in 1 watched step,"),
        ("", 0, 0, 0, "evaluated", "trained nothing in 5 steps: no backward"),
        ("", 3, 9, 0, "evaluated", "torch ran, but no backward"),
        ("", 3, 9, 2, "forward", "torch built autograd graphs, but no backward"),
        ("", 0, 0, 2, "forward", "give --steps above N"),
    ],
)
def test_states_and_their_caveats(sign, watched, operators, graphs, state, said):
    table = Trained(5, sign, watched, operators, graphs)
    assert table.state == state
    assert said in table.caveat and bool(table.caveat) == bool(said)


def test_a_run_that_was_killed_is_not_blamed(seen):
    found = seen(steps=steps(2), training=[]).get(Trained)
    assert (found.steps, found.sign, found.state) == (2, "unknown", "trained")
