"""Which size of micro-batches pays at an equal effective batch: the target run with each of a few,
and checked to train alike.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from auditor import amounts, patch
from auditor.evidence.table import Evidence
from auditor.extensions.verify.accumulation import Accumulation, find
from auditor.extensions.verify.accumulation_uses import Unclear
from auditor.extensions.verify.arms import peak_of
from auditor.extensions.verify.results import Agreement, Training, agree, alike
from auditor.extensions.verify.search import AS_IT_IS, DROPPED, Found, Grid, Setting
from auditor.extensions.verify.trials import Budget, Laboratory, Measured
from auditor.model.verification import Proposal
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording

TITLE = "batch size at an equal effective batch"
WHY = (
    "mostly, what is computed depends on how many samples a micro-batch has (batch norm, dropout, "
    "a loss that is summed or masked), or half precision hides that it does not"
)
"""What a result that differs mostly comes from."""


def settings(present: Accumulation) -> Mapping[Setting, tuple[int, int]]:
    """The batch size and the number of micro-batches of each larger pair with the same product: by
    powers of two, or all in one.
    """
    batch, count = present.batch, present.count
    factors = [
        by for by in range(2, count + 1) if count % by == 0 and (by == count or by & (by - 1) == 0)
    ]
    pairs = [(batch * by, count // by) for by in factors]
    return {_named(*pair): pair for pair in pairs}


def _named(batch: int, count: int) -> Setting:
    return f"{count} micro-batch{'es' * (count != 1)} of {batch}"


def search_for(evidence: Evidence) -> Search | None:
    """The search that a recorded program asks for; None where it does not accumulate, or nothing
    could be timed.

    Raises :class:`Unclear` where it accumulates and its numbers cannot be found or set for certain.
    """
    recording = evidence.recording
    if recording.input != "run" or recording.device.simulated:
        return None
    present = find(evidence)
    return Search(recording, present) if present is not None else None


class Search:
    """The search for one accumulation, as it was found in a recording. Raises :class:`Unclear` if
    its numbers cannot be set.
    """

    def __init__(self, recording: Recording, present: Accumulation) -> None:
        self._recording = recording
        self._present = present
        self._expected: Measured | None = None
        self._agreements: dict[Setting, Agreement] = {}
        self._pairs = {AS_IT_IS: (present.batch, present.count), **settings(present)}
        self._files = {setting: self._patched(setting) for setting in self._pairs}

    @property
    def values(self) -> int:
        """How many settings a round has."""
        return len(self._pairs)

    def run(self, laboratory: Laboratory, budget: Budget, say: Callable[[str], None]) -> Found:
        """The best pair with its curve, where one is proven; and what came out in a sentence."""

        def measured(setting: Setting) -> Measured:
            say(f"{TITLE}: {setting or 'as it is'}")
            run = laboratory.run(
                self._files[setting],
                moves=True,
                args=self._present.arguments(*self._pairs[setting]),
            )
            return run if run.failed else self._checked(setting, run)

        grid = Grid([setting for setting in self._pairs if setting != AS_IT_IS], measured)
        grid.measure(budget)
        if not grid.rounds:
            return None, f"{TITLE}: not tried, the budget was spent before"
        if not grid.works(AS_IT_IS):
            return None, f"{TITLE}: not to be had, {grid.runs[AS_IT_IS][-1].failed}"
        curve = self._curve(grid)
        best = grid.fastest()
        if best is None:
            told = "; ".join(f"{name}: {came}" for name, came in curve)
            return None, (
                f"{TITLE}, times of an optimizer step: {told}; none is proven "
                f"better{grid.shortfall}{self._why()}"
            )
        return self._proposal(grid, best, curve), f"{TITLE}: {best} is the best; see the proposal"

    def _patched(self, setting: Setting) -> tuple[PatchedFile, ...]:
        if setting == AS_IT_IS:
            return ()
        planned = patch.plan(
            self._present.edits(*self._pairs[setting]), self._recording.original_bytes
        )
        for edit, reason in planned.refused:
            raise Unclear(f"{edit.site}: {reason}")
        return planned.files

    def _checked(self, setting: Setting, measured: Measured) -> Measured:
        """A run whose training is another counts as one that failed."""
        if setting == AS_IT_IS:
            return replace(measured, failed=self._doubt(measured))
        if self._expected is None:
            return replace(measured, failed="there is nothing to compare it with")
        agreement = alike(
            self._training(self._expected, AS_IT_IS), self._training(measured, setting)
        )
        self._agreements[setting] = agreement
        failed = "" if agreement.same else f"{DROPPED}: another result, {agreement.note}"
        return replace(measured, failed=failed)

    def _doubt(self, measured: Measured) -> str:
        """Why the program as it is cannot be compared with others; empty where it can."""
        training = self._training(measured, AS_IT_IS)
        doubt = alike(training, training)
        if not doubt.same:
            return f"it does not accumulate as its lines say: {doubt.note}"
        self._expected = self._expected or measured
        if not agree(self._expected.results, measured.results).same:
            return (
                "two runs with the same seeds computed different losses, so no result can be "
                "compared"
            )
        return ""

    def _training(self, measured: Measured, setting: Setting) -> Training:
        assert measured.moves is not None
        return Training(measured.results.losses, measured.moves, self._pairs[setting][1])

    # -- what came out -----------------------------------------------------------------------------

    def _curve(self, grid: Grid) -> tuple[tuple[str, str], ...]:
        return tuple(
            (setting or f"{self._now} (now)", _came(grid, setting))
            for setting in sorted(grid.runs, key=self._pairs.__getitem__)
        )

    @property
    def _now(self) -> Setting:
        return _named(self._present.batch, self._present.count)

    def _proposal(self, grid: Grid, best: Setting, curve: tuple[tuple[str, str], ...]) -> Proposal:
        present, pair = self._present, self._pairs[best]
        edits, given = present.edits(*pair), present.arguments(*pair)
        where = f"{best} in the place of {self._now} ({present.site})"
        parts = [f"{where}: as many samples in each optimizer step."]
        if given != present.argv:
            parts.append(
                "On the command line: "
                f"`{shlex.join(given)}`{', and the patch for the other number' * bool(edits)}."
            )
        if present.said:
            parts.append(f"{'; '.join(present.said)}.")
        if self._why():
            parts.append(f"Of what was dropped{self._why()}.")
        after = grid.runs[best]
        verified = replace(
            grid.proven(best),
            peak_bytes_before=peak_of(grid.runs[AS_IT_IS][: len(after)]),
            peak_bytes_after=peak_of(after),
            same_result=True,
            note=f"{self._agreements[best].note}; the times are of an optimizer step",
        )
        diff = patch.plan(edits, self._recording.source_bytes).diff.decode("utf-8", "replace")
        return Proposal(TITLE, " ".join(parts), curve, verified, diff)

    def _why(self) -> str:
        """What is to be said where a size was dropped for its result."""
        return "" if all(agreement.same for agreement in self._agreements.values()) else f": {WHY}"


def _came(grid: Grid, setting: Setting) -> str:
    peak = peak_of(grid.runs[setting]) if grid.works(setting) else None
    return grid.came(setting) + (f", peak {amounts.size(peak)}" if peak else "")
