"""The whole experiment: rounds of runs, each patch alone, then all good ones together."""

from collections.abc import Callable, Iterator, Sequence

from auditor.errors import AuditProblem
from auditor.extensions.verify.arms import Arm, Candidate, joined
from auditor.extensions.verify.intervals import LEAST_PAIRS, Interval, of_pairs
from auditor.extensions.verify.trials import Budget, Laboratory, Measured, agree
from auditor.model.sections import Verification, Verified
from auditor.recordings.folder import Recording

Say = Callable[[str], None]

GOOD = ("better", "same", "inconclusive")
"""Patches that are tried together: they keep the result and slow nothing down."""


class Experiment:
    """Tries candidates in a laboratory until they are decided or the budget is spent.

    A round is one unpatched run and one of each patch that is undecided, the dearest finding's
    first; in the first three one more unpatched: the two give the noise floor and show whether the
    target repeats its losses. Every other round goes backwards, so that a machine that warms up or
    slows down favours no patch. From the second round on the patches that are good so far are tried
    in one run together, too.

    No run is begun that is not expected to end in time. A budget of 0 asks for the first round
    alone, which shows whether a patch breaks the result. Who has three pairs, and so an interval,
    waits until all have them that can; after that undecided ones go on, up to twelve.
    """

    def __init__(
        self, laboratory: Laboratory, recording: Recording, budget: Budget, say: Say
    ) -> None:
        self._laboratory = laboratory
        self._recording = recording
        self._budget = budget
        self._say = say
        self._unpatched: list[float] = []
        self._rounds = 0
        self._arms: list[Arm] = []
        self._together: Arm | None = None
        self._compared = False
        self._ended = ""
        self.repeatable = True

    def run(self, candidates: Sequence[Candidate]) -> tuple[dict[int, Verified], Verification]:
        """What is found out about each finding (by its place), and the verification."""
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
        others = [arm for arm in self._arms if arm not in timed]
        before = self._round(others, rehearsed=True) if others else None
        together = self._joined() if before is not None else None
        more = together not in (None, *self._arms) and self._fits(1)
        if before is not None and together is not None and more and not self._can_time(together):
            self._take(together, before, self._run(together, rehearsed=True), rehearsed=True)
        while (chosen := self._next(self._undecided(timed))) and self._round(chosen):
            pass

    def _undecided(self, timed: Sequence[Arm]) -> list[Arm]:
        noise, together = self.noise(), self._joined()
        more = together is not None and together not in timed and self._can_time(together)
        arms = [*timed, together] if together is not None and more else timed
        return [arm for arm in arms if not arm.decided(noise)]

    def _can_time(self, arm: Arm) -> bool:
        return not arm.candidate.rehearsed and not self._laboratory.rehearses

    def _fits(self, runs: int) -> bool:
        """True if this many more runs end in time. A budget of 0 allows one run of each patch."""
        return self._budget.seconds == 0 or self._budget.room() >= runs

    def _next(self, arms: Sequence[Arm]) -> list[Arm]:
        """The arms of one more round, in order of price: as many of those without an interval as can
        have it in time, else of the others, else one look at what was never run.
        """
        room, chosen = self._budget.room(), list[Arm]()
        for arm in [arm for arm in arms if _lacking(arm)] or arms:
            needed = [max(1, _lacking(each)) for each in (*chosen, arm)]
            if sum(needed) + max(needed) <= room:
                chosen.append(arm)
        never = [arm for arm in arms if not arm.pairs]
        return chosen or never[: max(0, min(room - 1, len(never)))]

    # -- rounds ------------------------------------------------------------------------------------

    def _round(self, arms: Sequence[Arm], *, rehearsed: bool = False) -> Measured | None:
        """One round, or as much of it as fits: its unpatched run, None if no patch was run. On the
        shadow device there is one, which shows result, syncs and peak, and no times.
        """
        self._rounds += not rehearsed
        backwards = not rehearsed and self._rounds % 2 == 0
        again = rehearsed or self._rounds <= LEAST_PAIRS
        if not self._fits(2):
            return None
        first = self._run(None, rehearsed=rehearsed) if again or not backwards else None
        done = [
            (arm, self._run(arm, rehearsed=rehearsed))
            for arm in (arms[::-1] if backwards else arms)
            if self._fits(1 + backwards)
        ]
        last = None
        if done and (backwards or (again and self._fits(1))):
            last = self._run(None, rehearsed=rehearsed)
        if first is not None and last is not None:
            self._compared = True
            self.repeatable = self.repeatable and agree(first.results, last.results).same
        before = last if backwards else first
        for arm, after in done[::-1] if backwards else done:
            assert before is not None
            self._take(arm, before, after, rehearsed=rehearsed)
        return before if done else None

    def _take(self, arm: Arm, before: Measured, after: Measured, *, rehearsed: bool) -> None:
        """Add a pair. A different result must recur: an unstable target accuses no patch."""
        arm.add(before, after)
        if not (arm.differs and self.repeatable):
            return
        if not self._fits(1):
            arm.break_by_result("; the budget left no time to confirm it")
        elif agree(before.results, self._run(arm, rehearsed=rehearsed).results).same:
            self.repeatable = False
        else:
            arm.break_by_result()

    def _run(self, arm: Arm | None, *, rehearsed: bool) -> Measured:
        """One run with the patch, or without any; the target must not fail by itself."""
        name, files = (arm.candidate.name, arm.candidate.files) if arm else ("unpatched", ())
        self._say(f"{'rehearsal' if rehearsed else f'round {self._rounds}'}: {name}")
        measured = self._budget.measured(lambda: self._laboratory.run(files, rehearsed=rehearsed))
        if arm is not None:
            return measured
        if measured.failed:
            raise AuditProblem(
                f"the unpatched target does not run to its end any more: {measured.failed}",
                "run audit again: its report shows where",
            )
        if not rehearsed and measured.step_us:
            self._unpatched.append(measured.step_us)
        return measured

    # -- all together ------------------------------------------------------------------------------

    def _joined(self) -> Arm | None:
        """The patches that are good so far as one candidate; restarted when one no longer is."""
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
        """Between unpatched runs that follow one another, two by two."""
        times = self._unpatched[: len(self._unpatched) // 2 * 2]
        return of_pairs(times[::2], times[1::2]) if len(times) >= 2 * LEAST_PAIRS else None

    def _verified(self, arm: Arm) -> Verified | None:
        return arm.verified(self.noise(), repeatable=self.repeatable)

    def _summary(self) -> Verification:
        noise, together = self.noise(), self._joined()
        tried = together if together is not None and together.pairs else None
        timed, laboratory = any(map(self._can_time, self._arms)), self._laboratory
        return Verification(
            together=self._verified(tried) if tried is not None else None,
            codes=tuple(dict.fromkeys(tried.candidate.codes)) if tried is not None else (),
            noise=(noise.low, noise.high) if noise is not None else None,
            repeatable=self.repeatable,
            runs=laboratory.runs,
            steps=laboratory.steps if timed else laboratory.rehearsed_steps,
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
                yield f"{arm.candidate.name}: not verified, the target reads no {paths} of its copy"
        if not self.repeatable:
            yield (
                "two unpatched runs with the same seeds computed different losses: no patch's "
                "result could be compared"
            )
        if not self._compared and any(arm.pairs for arm in self._arms):
            yield "the budget left no time to see whether the target repeats its own results"
        together = self._together if self._together not in self._arms else None
        if together is not None and together.broken:
            yield f"the patches that are good one by one are not so together: {together.broken}"
        elif together is not None and together.pairs and together.candidate.rehearsed:
            note = together.agreement.note if together.agreement is not None else "failed"
            said = note if self.repeatable else "results not compared"
            yield f"all {len(together.candidate.codes)} patches together, in the rehearsal: {said}"
        arms = [*self._arms, *([together] if together is not None else ())]
        if names := [arm.candidate.name for arm in arms if not arm.pairs]:
            length = self._budget.length()
            takes = "" if length is None else f" (a run takes {length:.0f} s)"
            yield f"not tried, the budget was spent before{takes}: {', '.join(names)}"


def _lacking(arm: Arm) -> int:
    """Pairs that it needs until it can have an interval."""
    return max(0, LEAST_PAIRS - len(arm.pairs))
