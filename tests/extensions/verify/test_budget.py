"""What fits into a budget, told from how long runs took, by a clock that the test moves."""

from auditor.extensions.verify.trials import Budget


class Clock:
    """Seconds; ``run`` makes a run that takes so many."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def run(self, seconds):
        def run():
            self.now += seconds
            return "measured"

        return run


def test_rounds_are_planned_and_begun_by_the_longest_run_of_late():
    clock = Clock()
    budget = Budget(100.0, clock)
    assert budget.length() is None
    assert budget.room() > 1000  # nobody knows yet
    assert budget.measured(clock.run(40.0)) == "measured"
    assert budget.room() == 1
    for seconds in (4.0, 2.0, 6.0):
        budget.measured(clock.run(seconds))
    assert budget.length() == 6.0  # the first was long ago
    assert (budget.spent, budget.room()) == (52.0, 8)
