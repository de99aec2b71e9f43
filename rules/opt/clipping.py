"""OPT004 and 6: how gradients are clipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.reads import Reads
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from ..reading import ReadingRule
from .rows import ClippingRow

CHECK = "error_if_nonfinite"


@dataclass(frozen=True)
class ClipReadsGradientNorm(ReadingRule):
    """Gradient clipping reads the norm on the host."""

    code = "OPT004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 4

    def detect(self, reads: Reads, source: Source, configs: Configs) -> Iterator[Finding]:
        for place, severity in self.reads(reads.clips()):
            call = source.call_with_keyword(place.site, CHECK)
            asked = given(source, configs, place.site, call, CHECK, ran=True)
            decided = f": {asked.said}" if asked.written else ""
            said = f"clipping reads the gradients' norm: {place.waits('this')}{decided}"
            remedy = _unchecked(place.site, call, asked)
            yield self.report(place, said, severity=severity, remedy=remedy)


def _unchecked(site: Site, call: str, asked: CallArgument) -> Remedy:
    """Of the call on the line that is given ``error_if_nonfinite`` as ``asked``."""
    look = "read the returned norms every N steps."
    # a library clips on the line's behalf, and asks for the check
    if not call:
        return Remedy(
            "Let it clip without error_if_nonfinite=True (pass False if the call takes "
            f"it), and {look}"
        )
    reason = "a non-finite norm then no longer raises an error"
    if asked.written:
        return asked.remedy(f"Set error_if_nonfinite to False, and {look}", "False", reason=reason)
    return Remedy(
        f"Drop error_if_nonfinite=True, and {look}",
        (Edit(site, "drop_keyword", call, CHECK, reason=reason),),
    )


@dataclass(frozen=True)
class ClippingMisplaced(Rule):
    """Gradients are clipped before the backward or after the step, where it has no effect."""

    code = "OPT006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True

    share: float = knob(0.5, "Report from this share of the optimizer's steps.")
    fewest: int = knob(3, "Report only from this many steps.")

    def detect(self, clippings: Rows[ClippingRow]) -> Iterator[Finding]:
        told: set[Site] = set()
        for line in clippings:
            if line.n < max(self.fewest, self.share * line.steps) or line.site in told:
                continue
            told.add(line.site)  # of a line with several optimizers the first
            why = (
                "there was no gradient yet, and the backward ran after it"
                if line.absent
                else "the optimizer had already stepped with these gradients, and the next backward "
                "ran after it"
            )
            yield Finding(
                line.site,
                f"this clips nothing that {line.optimizer} steps with, on {line.n} of "
                f"{line.steps} steps: {why}",
                steps=line.n,
                per_step=line.n / line.steps,
                remedy=Remedy(
                    f"Move it {'after the backward' if line.absent else 'before the step'}: "
                    "backward(), then clip, then step(). With a GradScaler, call "
                    "scaler.unscale_(optimizer) before the clip."
                ),
            )
