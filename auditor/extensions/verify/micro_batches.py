"""Which size of micro-batches pays at an equal effective batch: the target run with each of a few,
and checked to train alike.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Protocol

from auditor import amounts, patch
from auditor.evidence.table import Evidence
from auditor.extensions.verify.accumulation import Accumulation, find
from auditor.extensions.verify.accumulation_uses import Unclear
from auditor.extensions.verify.budget import Budget
from auditor.extensions.verify.intervals import LEAST_PAIRS
from auditor.extensions.verify.moves import Training, alike
from auditor.extensions.verify.results import Agreement, agree
from auditor.extensions.verify.search import AS_IT_IS, Grid, Setting
from auditor.extensions.verify.trials import Effective, Measured
from auditor.model.verification import Proposal, Verified
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording

TITLE = "batch size at an equal effective batch"
WHY = (
    "mostly, what is computed depends on how many samples a micro-batch has (batch norm, dropout, "
    "a loss that is summed or masked), "
    "or half precision hides that it does not"
)
"""What a result that differs mostly comes from."""

DROPPED = "dropped: another result"

LESS_MEMORY, EQUAL_SPEED = 0.99, 1.05
"""Smaller micro-batches are proposed for a device's peak of at most this share, where a step is
proven to take at most so much longer.
"""

SMALLER = (2, 4)
"""By what the micro-batch is divided where there is device memory to save."""


class Laboratory(Protocol):
    """Makes runs of patched copies; see :class:`auditor.extensions.verify.trials.Laboratory`."""

    def run(
        self, patched: Sequence[PatchedFile] = (), *, effective: Effective, args: tuple[str, ...]
    ) -> Measured:
        """One run."""


def settings(present: Accumulation, *, device: bool) -> tuple[Setting, ...]:
    """Other pairs of the two numbers with the same product: powers of two, or all in one; smaller
    ones where a device's memory counts.
    """
    batch, count = present.batch, present.count
    larger = [
        by for by in range(2, count + 1) if count % by == 0 and (by == count or by & (by - 1) == 0)
    ]
    smaller = [by for by in SMALLER if device and batch % by == 0]
    pairs = [
        *((batch // by, count * by) for by in smaller),
        *((batch * by, count // by) for by in larger),
    ]
    return tuple((("batch_size", one), ("micro-batches", other)) for one, other in pairs)


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
        self.settings = settings(present, device=recording.device.accelerator)
        for setting in self.settings:
            self._patched(setting)

    def run(
        self, laboratory: Laboratory, budget: Budget, say: Callable[[str], None]
    ) -> tuple[Proposal | None, str]:
        """The best pair with its curve, where one is proven; and what came out in a sentence."""

        def measured(setting: Setting) -> Measured:
            say(f"{TITLE}: {_named(setting) or 'as it is'}")
            calls = self._numbers(setting)[1] if self._present.calls > 1 else 1
            effective, args = (
                Effective(calls, self._present.calls),
                self._present.arguments(*self._numbers(setting)),
            )
            return self._checked(
                setting, laboratory.run(self._patched(setting), effective=effective, args=args)
            )

        grid = Grid(self.settings, measured)
        grid.measure(budget)
        if not grid.rounds:
            return None, f"{TITLE}: not tried, the budget was spent before"
        if not grid.works(AS_IT_IS):
            return None, f"{TITLE}: not to be had, {grid.runs[AS_IT_IS][-1].failed}"
        curve = self._curve(grid)
        told = "; ".join(f"{name}: {came}" for name, came in curve)
        best = grid.fastest() or _leanest(grid)
        if best is None:
            unfinished = grid.rounds < LEAST_PAIRS and any(map(grid.works, self.settings))
            few = (
                f" (the budget was spent after {grid.rounds} of {LEAST_PAIRS} rounds)"
                if unfinished
                else ""
            )
            return (
                None,
                (
                    f"{TITLE}, times of an optimizer step: {told}; none is proven "
                    f"better{few}{self._why()}"
                ),
            )
        return self._proposal(
            grid, best, curve
        ), f"{TITLE}: {_named(best)} is the best; see the proposal"

    # -- runs --------------------------------------------------------------------------------------

    def _numbers(self, setting: Setting) -> tuple[int, int]:
        values = dict(setting)
        return values.get("batch_size", self._present.batch), values.get(
            "micro-batches", self._present.count
        )

    def _patched(self, setting: Setting) -> tuple[PatchedFile, ...]:
        if setting == AS_IT_IS:
            return ()
        planned = patch.plan(
            self._present.edits(*self._numbers(setting)), self._recording.original_bytes
        )
        for edit, reason in planned.refused:
            raise Unclear(f"{edit.site}: {reason}")
        return planned.files

    def _checked(self, setting: Setting, measured: Measured) -> Measured:
        """A run whose training is another counts as one that failed."""
        if measured.failed:
            return measured
        if setting == AS_IT_IS:
            return self._as_it_is(measured)
        if self._expected is None:
            return replace(measured, failed="there is nothing to compare it with")
        agreement = alike(
            self._training(self._expected, AS_IT_IS), self._training(measured, setting)
        )
        self._agreements[setting] = agreement
        return (
            measured if agreement.same else replace(measured, failed=f"{DROPPED}, {agreement.note}")
        )

    def _as_it_is(self, measured: Measured) -> Measured:
        training = self._training(measured, AS_IT_IS)
        doubt = alike(training, training)
        if not doubt.same:
            return replace(
                measured, failed=f"it does not accumulate as its lines say: {doubt.note}"
            )
        self._expected = self._expected or measured
        if not agree(self._expected.results, measured.results).same:
            return replace(
                measured,
                failed="two runs with the same seeds computed different losses, "
                "so no result can be compared",
            )
        return measured

    def _training(self, measured: Measured, setting: Setting) -> Training:
        assert measured.moves is not None
        return Training(measured.results.losses, measured.moves, self._numbers(setting)[1])

    # -- what came out -----------------------------------------------------------------------------

    def _curve(self, grid: Grid) -> tuple[tuple[str, str], ...]:
        order = sorted(grid.runs, key=self._numbers)
        return tuple(
            (
                f"{_told(*self._numbers(setting))}{' (now)' if setting == AS_IT_IS else ''}",
                _came(grid, setting),
            )
            for setting in order
        )

    def _proposal(self, grid: Grid, best: Setting, curve: tuple[tuple[str, str], ...]) -> Proposal:
        now, wanted = _told(self._present.batch, self._present.count), _told(*self._numbers(best))
        edits = self._present.edits(*self._numbers(best))
        parts = [
            (
                f"{wanted} in the place of {now} ({self._present.site}): as many samples in each "
                "optimizer step."
            )
        ]
        given = self._present.arguments(*self._numbers(best))
        if given != self._present.argv:
            parts.append(
                "On the command line: "
                f"`{shlex.join(given)}`{', and the patch for the other number' * bool(edits)}."
            )
        if self._present.said:
            parts.append(f"{'; '.join(self._present.said)}.")
        if self._why():
            parts.append(f"Of what was dropped{self._why()}.")
        diff = patch.plan(edits, self._recording.source_bytes).diff.decode("utf-8", "replace")
        return Proposal(TITLE, " ".join(parts), curve, self._verified(grid, best), diff)

    def _why(self) -> str:
        """What is to be said where a size was dropped for its result."""
        return "" if all(agreement.same for agreement in self._agreements.values()) else f": {WHY}"

    def _verified(self, grid: Grid, best: Setting) -> Verified:
        after = grid.runs[best]
        return replace(
            grid.proven(best),
            peak_bytes_before=_peak(grid.runs[AS_IT_IS][: len(after)]),
            peak_bytes_after=_peak(after),
            same_result=True,
            note=f"{self._agreements[best].note}; the times are of an optimizer step",
        )


def _leanest(grid: Grid) -> Setting | None:
    """The one with the lowest peak of a device among those that are proven to be about as fast."""
    now = min((run.peak_device or 0 for run in grid.runs[AS_IT_IS]), default=0)
    lean = []
    for setting in filter(grid.works, grid.runs):
        interval, peak = (
            grid.interval(setting),
            max(run.peak_device or 0 for run in grid.runs[setting]),
        )
        if (
            setting != AS_IT_IS
            and interval is not None
            and interval.high <= EQUAL_SPEED
            and 0 < peak <= LESS_MEMORY * now
        ):
            lean.append((peak, setting))
    return min(lean, default=(0, None))[1]


def _came(grid: Grid, setting: Setting) -> str:
    if not grid.works(setting):
        failed = next(run.failed for run in grid.runs[setting] if run.failed or not run.step_us)
        return failed if failed.startswith(DROPPED) else f"fails, {failed}"
    interval = grid.interval(setting) if setting != AS_IT_IS else None
    ratio = (
        f" ({interval.ratio:.2f} [{interval.low:.2f} - {interval.high:.2f}])"
        if interval is not None
        else ""
    )
    peak = _peak(grid.runs[setting])
    return f"{amounts.duration(grid.step_us(setting))}{ratio}" + (
        f", peak {amounts.size(peak)}" if peak else ""
    )


def _peak(runs: Sequence[Measured]) -> int | None:
    known = [
        peak
        for run in runs
        if (peak := run.peak_device if run.peak_device is not None else run.peak_host) is not None
    ]
    return round(median(known)) if known else None


def _told(batch: int, count: int) -> str:
    return f"{count} micro-batch{'es' * (count != 1)} of {batch}"


def _named(setting: Setting) -> str:
    return _told(*(value for _, value in setting)) if setting else ""
