"""The whole experiment: rounds of unpatched and patched runs in turn, each patch alone, then all good ones together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from auditor.errors import AuditProblem
from auditor.model import Verification, Verified
from auditor.recording import Recording
from auditor.verify.arms import Arm
from auditor.verify.candidates import Candidate, joined
from auditor.verify.intervals import LEAST_PAIRS, Interval, of_pairs
from auditor.verify.results import agree
from auditor.verify.trials import Laboratory, Measured

Say = Callable[[str], None]


class Experiment:
    """Tries candidates in a laboratory until they are decided or ``budget`` (s) is spent.

    A round is one unpatched run, one of each undecided patch, in the first rounds one more unpatched: the two unpatched ones
    give the noise floor and show whether the target repeats its losses. Every other round goes backwards, so that a machine
    that warms up or slows down favours nobody. The first round is always run: it shows whether a patch breaks the result.
    From then on the patches that are good so far are tried in one run together, too.
    """

    def __init__(self, laboratory: Laboratory, recording: Recording, budget: float, say: Say) -> None:
        self._laboratory = laboratory
        self._recording = recording
        self._budget = budget
        self._say = say
        self._began = time.monotonic()
        self._unpatched: list[tuple[Measured, Measured]] = []
        self._rounds = 0
        self._arms: list[Arm] = []
        self._together: Arm | None = None
        self.repeatable = True

    def run(self, candidates: Sequence[Candidate]) -> tuple[dict[int, Verified], Verification]:
        """What is found out about each finding (by its place in the report), and the verification as a whole."""
        self._arms = arms = [Arm(candidate) for candidate in candidates]
        timed = [arm for arm in arms if self._can_time(arm)]
        if timed:
            self._round(timed)
        self._rehearse([arm for arm in arms if arm not in timed])
        while chosen := self._affordable(self._undecided(timed)):
            self._round(chosen)
        found = {number: done for arm in arms if (done := self._verified(arm)) is not None for number in arm.candidate.findings}
        return found, self._summary()

    def _undecided(self, timed: Sequence[Arm]) -> list[Arm]:
        noise, together = self.noise(), self._joined()
        more = together is not None and together not in timed and self._can_time(together)
        arms = [*timed, together] if together is not None and more else timed
        return [arm for arm in arms if not arm.decided(noise)]

    def _affordable(self, arms: Sequence[Arm]) -> Sequence[Arm]:
        """As many as one more round is likely to fit into the budget: all, else those that are together, else none."""
        for chosen in (arms, [arm for arm in arms if arm is self._together]):
            if chosen and self._elapsed() + self._seconds_per_run() * (len(chosen) + 2) <= self._budget:
                return chosen
        return ()

    def _can_time(self, arm: Arm) -> bool:
        return not arm.candidate.rehearsed and self._laboratory.device != "rehearse"

    # -- rounds --------------------------------------------------------------------------------------------------

    def _round(self, arms: Sequence[Arm]) -> None:
        self._rounds += 1
        backwards = self._rounds % 2 == 0
        again = len(self._unpatched) < LEAST_PAIRS
        first = self._unpatched_run() if again or not backwards else None
        measured = {id(arm): self._run(arm) for arm in (arms[::-1] if backwards else arms)}
        last = self._unpatched_run() if again or backwards else None
        if first is not None and last is not None:
            self._unpatched.append((last, first) if backwards else (first, last))
            self._compare_unpatched(first, last)
        before = last if backwards else first
        assert before is not None
        for arm in arms:
            self._take(arm, before, measured[id(arm)])

    def _take(self, arm: Arm, before: Measured, after: Measured, *, rehearsed: bool = False) -> None:
        """Add a pair. A result that differs must differ again: a target that is only sometimes the same accuses no patch."""
        arm.add(before, after)
        if arm.differs and self.repeatable:
            self._say(f"{arm.candidate.name}: another result; once more to be sure")
            again = self._laboratory.run(arm.candidate.files, rehearsed=rehearsed)
            if agree(before.results, again.results).same:
                self.repeatable = False
            else:
                arm.break_by_result()
        self._tell(arm)

    def _run(self, arm: Arm) -> Measured:
        self._say(f"round {self._rounds}: {arm.candidate.name}")
        return self._laboratory.run(arm.candidate.files)

    def _unpatched_run(self, *, rehearsed: bool = False) -> Measured:
        self._say(f"{'rehearsal' if rehearsed else f'round {self._rounds}'}: unpatched")
        measured = self._laboratory.run(rehearsed=rehearsed)
        if measured.failed:
            raise AuditProblem(f"the unpatched target does not run to its end any more: {measured.failed}")
        return measured

    def _compare_unpatched(self, one: Measured, other: Measured) -> None:
        if self.repeatable and not agree(one.results, other.results).same:
            self.repeatable = False
            self._say("two unpatched runs with the same seeds computed different losses: results cannot be compared")

    def _rehearse(self, arms: Sequence[Arm]) -> None:
        """Check on the shadow device what only a GPU would run: the same result, host syncs, peak memory; no times."""
        if not arms:
            return
        before = self._unpatched_run(rehearsed=True)
        self._compare_unpatched(before, self._unpatched_run(rehearsed=True))
        for arm in arms:
            self._rehearse_one(arm, before)
        together = self._joined()
        if together is not None and together not in self._arms and not self._can_time(together):
            self._rehearse_one(together, before)

    def _rehearse_one(self, arm: Arm, before: Measured) -> None:
        self._say(f"rehearsal: {arm.candidate.name}")
        self._take(arm, before, self._laboratory.run(arm.candidate.files, rehearsed=True), rehearsed=True)

    # -- all together --------------------------------------------------------------------------------------------

    def _joined(self) -> Arm | None:
        """The patches that are good by now as one; begun anew when one of them is good no longer."""
        good = [arm for arm in self._arms if (done := self._verified(arm)) is not None and done.status in ("better", "same")]
        if len(good) < 2:
            self._together = good[0] if good and self._can_time(good[0]) else None
            return self._together
        candidate = joined((arm.candidate for arm in good), self._recording)
        if candidate is None:
            self._together = None
        elif self._together is None or self._together.candidate != candidate:
            self._together = Arm(candidate)
        return self._together

    # -- what comes out ------------------------------------------------------------------------------------------

    def noise(self) -> Interval | None:
        """Between unpatched runs of the same rounds: the second against the first."""
        times = [(one.step_us, other.step_us) for one, other in self._unpatched if one.step_us and other.step_us]
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
            codes=tuple(dict.fromkeys(together.candidate.codes)) if together is not None and tried else (),
            noise=(noise.low, noise.high) if noise is not None else None,
            repeatable=self.repeatable,
            runs=self._laboratory.runs,
            steps=self._laboratory.steps if any(map(self._can_time, self._arms)) else self._laboratory.rehearsed_steps,
            seconds=round(self._elapsed(), 1),
            notes=tuple(self._notes()),
        )

    def _notes(self) -> list[str]:
        arms, together = self._arms, self._together
        notes = [f"{arm.candidate.name}: the patch is left out, {arm.broken}" for arm in arms if arm.broken]
        notes += [
            f"{arm.candidate.name}: not verified, since the target does not import {', '.join(arm.candidate.paths)} from its folder"
            for arm in arms
            if arm.unloaded
        ]
        if not self.repeatable:
            notes.append("two unpatched runs with the same seeds computed different losses: no patch's result could be compared")
        if (
            together is not None
            and together not in arms
            and together.pairs
            and together.candidate.rehearsed
            and not together.broken
        ):
            said = together.agreement.note if together.agreement is not None and self.repeatable else "results not compared"
            notes.append(f"all {len(together.candidate.codes)} patches together, in the rehearsal: {said}")
        if together is not None and together.broken and together not in arms:
            notes.append(f"the patches that are good one by one are not so together: {together.broken}")
        return notes

    def _tell(self, arm: Arm) -> None:
        interval = arm.interval()
        if arm.broken:
            self._say(f"{arm.candidate.name}: {arm.broken}")
        elif interval is not None:
            said = f"ratio {interval.ratio:.3f} [{interval.low:.3f} - {interval.high:.3f}]"
            self._say(f"{arm.candidate.name}: {said} after {len(arm.pairs)} pairs")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _seconds_per_run(self) -> float:
        return self._elapsed() / max(1, self._laboratory.runs)
