"""What fits into a budget, told from how long runs took, by a clock that the test moves."""

from collections.abc import Callable
from typing import Any

from auditor.extensions.verify.trials import Budget


class Clock:
    """Seconds; ``run`` makes a run that takes so many."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def run(self, seconds: float) -> Callable[[], Any]:
        def run() -> str:
            self.now += seconds
            return "measured"

        return run


def test_rounds_are_planned_by_the_typical_run_and_begun_by_the_longest_of_late() -> None:
    clock = Clock()
    budget = Budget(100.0, clock)
    assert budget.length() is None
    assert budget.fits(1000)  # nobody knows yet
    assert budget.measured(clock.run(40.0)) == "measured"
    assert (budget.planned(), budget.fits(1), budget.fits(2)) == (1, True, False)
    for seconds in (4.0, 2.0, 6.0):
        budget.measured(clock.run(seconds))
    assert budget.length() == 4.0  # the first was long ago
    assert budget.spent == 52.0
    assert (budget.planned(), budget.fits(8), budget.fits(9)) == (12, True, False)


def test_runs_of_the_rehearsal_have_a_length_of_their_own_once_there_was_one() -> None:
    clock = Clock()
    budget = Budget(60.0, clock)
    budget.measured(clock.run(10.0))
    assert budget.length(rehearsed=True) == 10.0
    budget.measured(clock.run(2.0), rehearsed=True)
    assert (budget.length(rehearsed=True), budget.length()) == (2.0, 10.0)
    assert budget.fits(24, rehearsed=True) and not budget.fits(5)


def test_a_spent_budget_fits_nothing() -> None:
    clock = Clock()
    assert not Budget(0.0, clock).fits(1)
    budget = Budget(5.0, clock)
    budget.measured(clock.run(7.0))
    assert budget.planned() == 0
