"""A small grid of settings, each run in turn with what is there now, until the best one is proven
or the budget is spent: what the searches for micro-batches and for torch.compile share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from auditor import amounts
from auditor.extensions.verify.intervals import LEAST_PAIRS, Interval, of_pairs
from auditor.extensions.verify.trials import Budget, Measured
from auditor.model.verification import Proposal, Verified

Found = tuple[Proposal | None, str]
"""What a search comes to: the best setting, where one is proven, and a sentence."""

Setting = str
"""What a setting is called; runs of it are made by the search."""

AS_IT_IS: Setting = ""

DROPPED = "dropped"
"""What a run's ``failed`` begins with where the target reached its end and is no candidate."""

MOST_ROUNDS = 6
"""Rounds at most: what six pairs of runs do not show is not worth more."""


class Grid:
    """Rounds of runs: the program as it is, and the ``others``. Every other round goes backwards.

    Rounds are planned by how long runs take: after the first, only so many of the fastest others go
    on as can have an interval.
    """

    def __init__(self, others: Sequence[Setting], run: Callable[[Setting], Measured]) -> None:
        self.runs: dict[Setting, list[Measured]] = {}
        self.rounds = 0
        self._left = list(others)
        self._run = run

    def measure(self, budget: Budget) -> None:
        """Make the rounds."""
        while (
            self._left
            and self.rounds < MOST_ROUNDS
            and self._goes_on(budget)
            and self._round(budget)
        ):
            pass

    def _goes_on(self, budget: Budget) -> bool:
        if not self.rounds:
            return True
        self._left = [setting for setting in self._left if self.works(setting)]
        if not self.works(AS_IT_IS) or (
            self.rounds >= LEAST_PAIRS and all(map(self._decided, self._left))
        ):
            return False
        room = budget.planned() // max(1, LEAST_PAIRS - self.rounds) - 1
        self._left = sorted(self._left, key=self.step_us)[: max(0, room)]
        return bool(self._left)

    def _round(self, budget: Budget) -> bool:
        """Make one round; False if the time did not suffice for all of it."""
        order = [AS_IT_IS, *self._left]
        done: dict[Setting, Measured] = {}
        for setting in order if self.rounds % 2 == 0 else order[::-1]:
            if budget.fits(1):
                done[setting] = budget.measured(partial(self._run, setting))
                if setting == AS_IT_IS and done[setting].failed:
                    break  # there is nothing to compare the others with
        if AS_IT_IS in done:
            self.rounds += 1
            for setting, measured in done.items():
                self.runs.setdefault(setting, []).append(measured)
        return len(done) == len(order)

    # -- what came out -----------------------------------------------------------------------------

    def works(self, setting: Setting) -> bool:
        """True if it was run, and the target came to its end each time."""
        return setting in self.runs and all(
            not run.failed and run.step_us for run in self.runs[setting]
        )

    def step_us(self, setting: Setting) -> float:
        """Median of its runs' step times, us."""
        return median(run.step_us or 0.0 for run in self.runs[setting])

    def interval(self, setting: Setting) -> Interval | None:
        """Of its step time to that of the program as it is, in the rounds that had both."""
        after = [run.step_us or 0.0 for run in self.runs[setting]]
        before = [run.step_us or 0.0 for run in self.runs[AS_IT_IS]]
        return of_pairs(before[: len(after)], after)

    def proven(self, best: Setting) -> Verified:
        """Times of a setting that has an interval, beside the program as it is; memory and result
        are left open.
        """
        interval = self.interval(best)
        assert interval is not None
        pairs = len(self.runs[best])
        return Verified(
            status="better",
            step_us_before=median(run.step_us or 0.0 for run in self.runs[AS_IT_IS][:pairs]),
            step_us_after=self.step_us(best),
            ratio=interval.ratio,
            ratio_low=interval.low,
            ratio_high=interval.high,
            pairs=pairs,
        )

    def fastest(self) -> Setting | None:
        """The fastest of those that are proven faster than the program as it is."""
        proven = [
            setting
            for setting in self.runs
            if setting != AS_IT_IS
            and self.works(setting)
            and (interval := self.interval(setting)) is not None
            and interval.high < 1.0
        ]
        return min(proven, key=self.step_us, default=None)

    def came(self, setting: Setting) -> str:
        """Its step time with the interval of its ratio, or why there is none."""
        if setting not in self.runs:
            return "not run again, the budget was spent before"
        if not self.works(setting):
            failed = next(run.failed for run in self.runs[setting] if run.failed or not run.step_us)
            return failed if failed.startswith(DROPPED) else f"fails, {failed}"
        took = amounts.duration(self.step_us(setting))
        interval = self.interval(setting) if setting != AS_IT_IS else None
        if interval is None:
            return took
        return f"{took} ({interval.ratio:.2f} [{interval.low:.2f} - {interval.high:.2f}])"

    @property
    def shortfall(self) -> str:
        """A remark where the budget was spent while some setting still had no interval."""
        others = any(self.works(setting) for setting in self.runs if setting != AS_IT_IS)
        if self.rounds >= LEAST_PAIRS or (self.rounds and not others):
            return ""
        return f" (the budget was spent after {self.rounds} of {LEAST_PAIRS} rounds)"

    def _decided(self, setting: Setting) -> bool:
        interval = self.interval(setting)
        return interval is not None and interval.excludes_one
