"""The whole experiment: rounds of unpatched and patched runs in turn, each patch alone, then all
good ones together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from auditor.errors import AuditProblem
from auditor.extensions.verify.arms import Arm, Candidate, joined
from auditor.extensions.verify.intervals import LEAST_PAIRS, Interval, of_pairs
from auditor.extensions.verify.results import agree
from auditor.extensions.verify.trials import Budget, Laboratory, Measured
from auditor.model.verification import Verification, Verified
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording

Say = Callable[[str], None]

GOOD = ("better", "same", "inconclusive")
"""What a patch may have come to by now that is tried together with the others: it keeps the result,
and slows nothing down.
"""


class Experiment:
    """Tries candidates in a laboratory until they are decided or the budget is spent.

    A round is one unpatched run, one of each undecided patch, in the first rounds one more
    unpatched where there is time for it: the two unpatched ones give the noise floor and show
    whether the target repeats its losses. Every other round goes backwards, so that a machine that
    warms up or slows down favours nobody. From the second round on the patches that are good so far
    are tried in one run together, too.

    No run is begun that is not expected to end in time. The first round shows whether a patch
    breaks the result, and goes as far as the time allows; a budget of 0 asks for that round and
    nothing else. A later round has only those for which the rounds up to their interval fit, so
    that the time is not spent on pairs too few to say anything.
    """

    def __init__(
        self, laboratory: Laboratory, recording: Recording, budget: Budget, say: Say
    ) -> None:
        self._laboratory = laboratory
        self._recording = recording
        self._budget = budget
        self._say = say
        self._unpatched: list[tuple[Measured, Measured]] = []
        self._neighbours: list[tuple[Measured, Measured]] = []
        self._at_the_end: Measured | None = None
        self._rounds = 0
        self._arms: list[Arm] = []
        self._together: Arm | None = None
        self._compared = False
        self._ended = ""
        self.repeatable = True

    def run(self, candidates: Sequence[Candidate]) -> tuple[dict[int, Verified], Verification]:
        """What is found out about each finding (by its place in the report), and the verification
        as a whole.
        """
        self._arms = arms = [Arm(candidate) for candidate in candidates]
        try:
            self._measure([arm for arm in arms if self._can_time(arm)])
        except AuditProblem as problem:
            if not any(arm.pairs for arm in arms):
                raise
            self._ended = problem.message  # what was measured by then is not lost
        found = {
            number: done
            for arm in arms
            if (done := self._verified(arm)) is not None
            for number in arm.candidate.findings
        }
        return found, self._summary()

    def _measure(self, timed: Sequence[Arm]) -> None:
        if timed:
            self._round(timed)
        self._rehearse([arm for arm in self._arms if arm not in timed])
        while (chosen := self._affordable(self._undecided(timed))) and self._round(chosen):
            pass

    def _undecided(self, timed: Sequence[Arm]) -> list[Arm]:
        noise, together = self.noise(), self._joined()
        more = together is not None and together not in timed and self._can_time(together)
        arms = [*timed, together] if together is not None and more else timed
        return [arm for arm in arms if not arm.decided(noise)]

    def _can_time(self, arm: Arm) -> bool:
        return not arm.candidate.rehearsed and not self._laboratory.rehearses

    # -- what fits into the budget -----------------------------------------------------------------

    def _fits(self, runs: int, *, rehearsed: bool = False) -> bool:
        """True if so many more runs end in time. The first look at each patch is all that a budget
        of 0 asks for.
        """
        return self._budget.seconds == 0 or self._budget.fits(runs, rehearsed=rehearsed)

    def _affordable(self, arms: Sequence[Arm]) -> list[Arm]:
        """The arms of one more round: who has no interval yet before who has, single patches before
        all together, then who lacks least to an interval, had fewest pairs, changed most.

        What all do together is no answer to which of them is worth having, so it does not take the
        time of that. Where the time gives no more intervals, what was never run is run once: its
        result is worth knowing without its time.
        """
        order = sorted(arms, key=self._turn)
        return self._fitting(order, _lacking) or self._fitting(
            [arm for arm in order if not arm.pairs], lambda arm: 1
        )

    def _turn(self, arm: Arm) -> tuple[bool, bool, int, int, float]:
        return (
            len(arm.pairs) >= LEAST_PAIRS,
            arm not in self._arms,
            _lacking(arm),
            len(arm.pairs),
            -arm.effect,
        )

    def _fitting(self, arms: Sequence[Arm], rounds: Callable[[Arm], int]) -> list[Arm]:
        """As many, from the first on, as can have their ``rounds`` in time."""
        room, chosen = self._budget.planned(), list[Arm]()
        for arm in arms:
            needed = [rounds(each) for each in (*chosen, arm)]
            if sum(needed) + max(needed) <= room:
                chosen.append(arm)
        return chosen

    def _spares_one(self, arms: Sequence[Arm]) -> bool:
        """Whether a second unpatched run leaves time for the intervals of these arms. The first
        round has one: does the target repeat its losses?
        """
        needed = [_lacking(arm) for arm in arms]
        return self._rounds == 1 or self._budget.planned() > sum(needed) + max(needed)

    # -- rounds ------------------------------------------------------------------------------------

    def _round(self, arms: Sequence[Arm]) -> bool:
        """One round, or as much of it as fits; False if no patch was run."""
        self._rounds += 1
        backwards = self._rounds % 2 == 0
        again = len(self._unpatched) < LEAST_PAIRS and self._spares_one(arms)
        if not self._fits(2):
            return False
        first = self._unpatched_run() if again or not backwards else None
        done = [
            (arm, self._patched_run(arm))
            for arm in (arms[::-1] if backwards else arms)
            if self._fits(1 + backwards)
        ]
        last = self._unpatched_run() if done and (backwards or (again and self._fits(1))) else None
        if first is not None and last is not None:
            self._unpatched.append((last, first) if backwards else (first, last))
            self._compare_unpatched(first, last)
        elif first is not None and self._at_the_end is not None:
            self._neighbours.append((self._at_the_end, first))
        self._at_the_end = last if first is None else None
        before = last if backwards else first
        for arm, after in done[::-1] if backwards else done:
            assert before is not None
            self._take(arm, before, after)
        return bool(done)

    def _take(
        self, arm: Arm, before: Measured, after: Measured, *, rehearsed: bool = False
    ) -> None:
        """Add a pair. A result that differs must differ again: a target that is only sometimes the
        same accuses no patch.
        """
        arm.add(before, after)
        if arm.differs and self.repeatable:
            self._confirm(arm, before, rehearsed=rehearsed)
        self._tell(arm)

    def _confirm(self, arm: Arm, before: Measured, *, rehearsed: bool) -> None:
        if not self._fits(1, rehearsed=rehearsed):
            arm.break_by_result("; the budget left no time to see it a second time")
            return
        self._say(f"{arm.candidate.name}: another result; once more to be sure")
        again = self._run(arm.candidate.files, rehearsed=rehearsed)
        if agree(before.results, again.results).same:
            self.repeatable = False
        else:
            arm.break_by_result()

    def _run(self, files: Sequence[PatchedFile] = (), *, rehearsed: bool = False) -> Measured:
        return self._budget.measured(
            lambda: self._laboratory.run(files, rehearsed=rehearsed), rehearsed=rehearsed
        )

    def _patched_run(self, arm: Arm, *, rehearsed: bool = False) -> Measured:
        self._say(f"{self._round_name(rehearsed=rehearsed)}: {arm.candidate.name}")
        return self._run(arm.candidate.files, rehearsed=rehearsed)

    def _unpatched_run(self, *, rehearsed: bool = False) -> Measured:
        self._say(f"{self._round_name(rehearsed=rehearsed)}: unpatched")
        measured = self._run(rehearsed=rehearsed)
        if measured.failed:
            raise AuditProblem(
                f"the unpatched target does not run to its end any more: {measured.failed}",
                "run audit again: its report shows where, and how long that takes is what these "
                "runs are given",
            )
        return measured

    def _round_name(self, *, rehearsed: bool) -> str:
        return "rehearsal" if rehearsed else f"round {self._rounds}"

    def _compare_unpatched(self, one: Measured, other: Measured) -> None:
        self._compared = True
        if self.repeatable and not agree(one.results, other.results).same:
            self.repeatable = False
            self._say(
                "two unpatched runs with the same seeds computed different losses: results cannot "
                "be compared"
            )

    def _rehearse(self, arms: Sequence[Arm]) -> None:
        """Check on the shadow device what only a GPU would run: the same result, host syncs, peak
        memory; no times.
        """
        if not arms or not self._fits(2, rehearsed=True):
            return
        before = self._unpatched_run(rehearsed=True)
        done = self._rehearsed(arms)
        if self._fits(1, rehearsed=True):
            self._compare_unpatched(before, self._unpatched_run(rehearsed=True))
        for arm, after in done:
            self._take(arm, before, after, rehearsed=True)
        together = self._joined()
        if together is not None and together not in self._arms and not self._can_time(together):
            for arm, after in self._rehearsed([together]):
                self._take(arm, before, after, rehearsed=True)

    def _rehearsed(self, arms: Sequence[Arm]) -> list[tuple[Arm, Measured]]:
        return [
            (arm, self._patched_run(arm, rehearsed=True))
            for arm in arms
            if self._fits(1, rehearsed=True)
        ]

    # -- all together ------------------------------------------------------------------------------

    def _joined(self) -> Arm | None:
        """The patches that are good by now as one; begun anew when one of them is good no
        longer.
        """
        good = [
            arm
            for arm in self._arms
            if (done := self._verified(arm)) is not None and done.status in GOOD
        ]
        if len(good) < 2:
            self._together = good[0] if good and self._can_time(good[0]) else None
            return self._together
        candidate = joined((arm.candidate for arm in good), self._recording)
        if candidate is None:
            self._together = None
        elif self._together is None or self._together.candidate != candidate:
            self._together = Arm(candidate)
        return self._together

    # -- what comes out ----------------------------------------------------------------------------

    def noise(self) -> Interval | None:
        """Between unpatched runs: of the same rounds, the second against the first, and of rounds
        that follow one another.
        """
        pairs = (*self._unpatched, *self._neighbours)
        times = [
            (one.step_us, other.step_us) for one, other in pairs if one.step_us and other.step_us
        ]
        if len(times) < LEAST_PAIRS:
            return None
        return of_pairs([one or 0.0 for one, _ in times], [other or 0.0 for _, other in times])

    def _verified(self, arm: Arm) -> Verified | None:
        return arm.verified(self.noise(), repeatable=self.repeatable)

    def _summary(self) -> Verification:
        noise, together = self.noise(), self._joined()
        tried = together is not None and bool(together.pairs)
        return Verification(
            together=self._verified(together) if together is not None and tried else None,
            codes=tuple(dict.fromkeys(together.candidate.codes))
            if together is not None and tried
            else (),
            noise=(noise.low, noise.high) if noise is not None else None,
            repeatable=self.repeatable,
            runs=self._laboratory.runs,
            steps=self._laboratory.steps
            if any(map(self._can_time, self._arms))
            else self._laboratory.rehearsed_steps,
            seconds=round(self._budget.spent, 1),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        if self._ended:
            yield f"ended before the budget was spent: {self._ended}"
        for arm in self._arms:
            if arm.broken:
                yield f"{arm.candidate.name}: the patch is left out, {arm.broken}"
            if arm.unloaded:
                paths = ", ".join(arm.candidate.paths)
                yield (
                    f"{arm.candidate.name}: not verified, since the target reads no {paths} of the "
                    "copy that it runs in"
                )
        if not self.repeatable:
            yield (
                "two unpatched runs with the same seeds computed different losses: no patch's "
                "result could be compared"
            )
        if not self._compared and any(arm.pairs for arm in self._arms):
            yield (
                "the budget left no time for a second unpatched run: whether the target repeats "
                "its own results was not seen"
            )
        if self._together is not None and self._together not in self._arms:
            yield from self._told_together(self._together)
        yield from self._untried()

    def _told_together(self, together: Arm) -> Iterator[str]:
        if together.broken:
            yield f"the patches that are good one by one are not so together: {together.broken}"
        elif together.pairs and together.candidate.rehearsed:
            said = (
                together.agreement.note
                if together.agreement is not None and self.repeatable
                else "results not compared"
            )
            yield f"all {len(together.candidate.codes)} patches together, in the rehearsal: {said}"

    def _untried(self) -> Iterator[str]:
        arms = (
            self._arms if self._together in (None, *self._arms) else [*self._arms, self._together]
        )
        names = [arm.candidate.name for arm in arms if arm is not None and not arm.pairs]
        length = self._budget.length()
        if names:
            takes = "" if length is None else f" (a run takes {length:.0f} s)"
            yield f"not tried, the budget was spent before{takes}: {', '.join(names)}"

    def _tell(self, arm: Arm) -> None:
        interval = arm.interval()
        if arm.broken:
            self._say(f"{arm.candidate.name}: {arm.broken}")
        elif interval is not None:
            said = f"ratio {interval.ratio:.3f} [{interval.low:.3f} - {interval.high:.3f}]"
            self._say(f"{arm.candidate.name}: {said} after {len(arm.pairs)} pairs")


def _lacking(arm: Arm) -> int:
    """Pairs that it needs until it can have an interval, and one more where it has one."""
    return max(1, LEAST_PAIRS - len(arm.pairs))
