"""What the rules about copies to the device share: every step, on a GPU's path, by line."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from auditor import amounts
from auditor.evidence.recorded.copies import CopyLine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span
from auditor.evidence.trace.facts import TraceSteps
from auditor.model import Edit, Finding, Severity, Site
from auditor.model.what_if import Change
from auditor.rule import Rule, knob

from .lines import LineRule

SAME_ANYWHERE = frozenset({"zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "eye"})
"""Functions whose result no device rounds or draws."""


def made_on_device(moves: Iterable[tuple[Site, str, Span | None]], makes: str) -> Iterator[Edit]:
    """Where the device of what torch ``makes`` is named, for each call that moves it."""
    same = makes in SAME_ANYWHERE
    reason = (
        f"torch.{makes} makes the same values on any device"
        if same
        else "the device makes other values, or rounds them differently"
    )
    for site, call, span in moves if makes else ():
        yield Edit(site, "make_on_device", call, safe=same, reason=reason, span=span)


class CopyRule(LineRule):
    """Base of the rules about copies; no rule itself."""

    rehearsed = True
    cause = "copy to the device"

    def own(self, lines: Iterable[CopyLine]) -> Iterator[CopyLine]:
        """The usual ones that copy by themselves: a library's copy for a line is not theirs."""
        return (line for line in self.usual(lines) if not line.library)

    @staticmethod
    def waiting_moves(
        place: CopyLine, source: Source, configs: Configs
    ) -> tuple[CallArgument, ...]:
        """What each call that moves a tensor and waits is given as ``non_blocking``."""
        return tuple(
            given(source, configs, site, call, "non_blocking", ran=False, span=span)
            for site, call, span in place.moves
        )

    @staticmethod
    def waits_because(moves: Iterable[CallArgument]) -> str:
        """What they are given instead of True, and where that was set; empty if nothing."""
        return next((move.said for move in moves if move.said), "")

    @staticmethod
    def without_waiting(
        moves: Iterable[CallArgument], places: Iterable[CopyLine]
    ) -> Iterator[Edit]:
        """``non_blocking=True`` for each call here that moves a batch in pinned memory."""
        safe = not any(row.rewritten for place in places for row in place.rows)
        reason = (
            "the device runs the copy before the kernels that need it; no step wrote to the batch "
            "on the host after it was copied"
            if safe
            else "the host may write to the batch while it is still being copied"
        )
        edits = (edit for move in moves for edit in move.edits("True", safe=safe, reason=reason))
        yield from dict.fromkeys(edits)

    @staticmethod
    def decided_elsewhere(moves: Iterable[CallArgument]) -> tuple[str, str | None]:
        """What to advise where an expression decides whether a move waits: it is not edited."""
        moves = [move for move in moves if move.written]
        advice = next((move.advice for move in moves), "")
        return advice, next((move.refused for move in moves if move.refused), None)


# -- transfers -------------------------------------------------------------------------------------

WITHOUT = {"to_device": Change("copies to device"), "to_host": Change("copies to host")}


@dataclass(frozen=True)
class TransferRule(Rule):
    """Base of the rules about time in which a device does nothing but copy; no rule itself."""

    share: float = knob(0.1, "Warn if copies alone take at least this share (TraceML's limit).")
    severe: float = knob(0.2, "Report an error if they take at least this share (TraceML's limit).")
    least_us: float = knob(100.0, "Report only if they take at least this many us per step.")

    def bound(
        self, steps: TraceSteps, way: Literal["to_device", "to_host"], words: str
    ) -> Iterator[Finding]:
        """A finding where copies ``way`` (``to_device``, ``to_host``) take a share of the whole
        that recurs after the first step.

        Its price leaves out what pinned memory would save: that is the price of the waits for
        pageable copies.
        """
        steps.need_a_device()
        part = f"{way}_alone_us"
        share, mean = steps.share(part), steps.mean(part)
        if min(share, steps.steady(part)) < self.share or mean < self.least_us:
            return
        often, marked = steps.steps_above(part, self.share), steps.marked
        slow = min(mean, steps.mean(f"{way}_slow_us"))
        pageable = "of that because the memory is pageable", f"{amounts.duration(slow)} per step"
        certain = steps.certain and steps.recurs(part, self.share)
        severity = Severity.ERROR if share >= self.severe else None
        yield Finding(
            None,
            f"for {amounts.percent(share)} of {steps.where} the device only copies {words}",
            steps=often if marked else 0,
            per_step=1.0 if marked else 0.0,
            lost_us_per_step=mean - slow if marked else None,
            basis="estimated" if marked else "none",
            seen_on="trace",
            severity=severity if certain else Severity.NOTE,
            facts=(
                (f"copies {words}", f"{amounts.percent(steps.share(f'{way}_us'))} of the time"),
                ("not overlapped", f"{amounts.duration(mean)} per step"),
                *((pageable,) if slow else ()),
                ("steps from", steps.source),
            ),
            changes=(WITHOUT[way],) if marked else (),
        )
