"""Mixed precision as it ran: autocast, GradScaler, and what was clipped while gradients were
scaled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.numerics import AmpRow

ROWS = ("update", "growth")
"""Rows of the pass's end, which are no events."""


@dataclass(frozen=True)
class AmpEvent:
    """One kind of thing at one place in one step.

    ``what``: ``autocast`` and ``autocast_no_grad`` (entered, with gradients on and off), ``scale``
    (of an enabled GradScaler), ``made`` (one, in the step), ``clamp_scaled`` and ``mul_scaled``
    (a gradient's own ``clamp_`` or ``mul_``, while it was scaled), ``step_again`` (an optimizer
    stepped twice on the same gradients), ``update_early`` (a scaler updated before it stepped
    another optimizer of the same step), ``clip_scaled`` (clipping such gradients),
    ``step_scaled`` (an optimizer stepped with such), ``backward`` (under autocast),
    ``backward_unscaled`` (of what float16 computed, where nothing scaled the loss),
    ``old_autocast`` and ``old_scaler`` (of a class that torch 2.4 deprecated).
    """

    what: str
    site: Site
    step: int
    dtype: str = ""
    n: int = 1


@dataclass(frozen=True)
class ScaleUpdate:
    """One call of ``GradScaler.update``: the scale before and after; a lower one means that the
    step was skipped.
    """

    site: Site
    step: int
    before: float
    after: float

    @property
    def skipped(self) -> bool:
        """True if the gradients were not finite."""
        return self.after < self.before


@dataclass(frozen=True)
class AmpPlace:
    """A place with the steps that something happened on."""

    site: Site
    pattern: StepPattern
    per_step: float


@dataclass(frozen=True)
class Amp(Table):
    """Events of the loud pass."""

    parts: ClassVar[tuple[str, ...]] = ("amp", "steps")

    steps: int = 0
    events: tuple[AmpEvent, ...] = ()
    updates: tuple[ScaleUpdate, ...] = ()
    intervals: tuple[float, ...] = ()
    """``growth_interval`` of the scalers that scaled a loss."""
    not_updated: Site | None = None
    """Where torch refused a second ``step``, since no ``update()`` came between, and the run
    ended.
    """

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Amp | None:
        """What ended the run, if that was a missing ``update()``."""
        site = _not_updated(evidence)
        return None if site is None else cls(not_updated=site)

    @classmethod
    def build(cls, evidence: Evidence) -> Amp:
        """From the loud pass."""
        steps = len(evidence.get(Steps).loud)
        rows = [
            row for row in rows_of(evidence, AmpRow) if row.pass_name == "loud" and row.step < steps
        ]
        events = tuple(_event(evidence, row) for row in rows if row.what not in ROWS)
        updates = [row for row in rows if row.what == "update"]
        scales = tuple(
            ScaleUpdate(evidence.recording.site(row.at), row.step, row.before, row.after)
            for row in updates
            if row.before is not None
            and row.after is not None
            and not evidence.recording.device.null  # zeros, whatever the scale
        )
        intervals = tuple(row.before or 0.0 for row in rows if row.what == "growth")
        return cls(steps, events, scales, intervals, _not_updated(evidence))

    def places(self, what: str) -> Iterator[AmpPlace]:
        """Where it happened, in order of file and line."""
        chosen = [each for each in self.events if each.what == what]
        for site in sorted({each.site for each in chosen}, key=lambda site: (site.file, site.line)):
            here = [each for each in chosen if each.site == site]
            seen = step_pattern({each.step for each in here}, self.steps)
            yield AmpPlace(site, seen, sum(each.n for each in here) / max(1, self.steps))

    @property
    def only_bfloat16(self) -> bool:
        """True if autocast ran, and never in anything but bfloat16."""
        return self._dtypes == {"bfloat16"}

    @property
    def only_float16(self) -> bool:
        """True if autocast ran, and never in anything but float16."""
        return self._dtypes == {"float16"}

    @property
    def _dtypes(self) -> set[str]:
        return {each.dtype for each in self.events if each.what in ("autocast", "autocast_no_grad")}

    @property
    def skipped(self) -> tuple[ScaleUpdate, ...]:
        """Updates after a step that was skipped."""
        return tuple(each for each in self.updates if each.skipped)


NOT_UPDATED = "step() has already been called since the last update()"
"""What torch says of a second ``step`` of one optimizer; of a second ``unscale_`` it says likewise,
which can be that alone.
"""


def _not_updated(evidence: Evidence) -> Site | None:
    error = evidence.recording.manifest.get("error") or {}
    file, line = error.get("file"), error.get("line")
    if NOT_UPDATED not in str(error.get("message") or "") or not file or line is None:
        return None
    return evidence.recording.site_at(file, line, error.get("function") or "")


def _event(evidence: Evidence, row: AmpRow) -> AmpEvent:
    return AmpEvent(row.what, evidence.recording.site(row.at), row.step, row.dtype or "", row.n)
