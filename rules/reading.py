"""What the rules about lines that read tensors have in common: how often is often, and how a line
is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.reads import Place, Reads
from auditor.evidence.source.callers import callers_named
from auditor.evidence.source.files import Source, Span
from auditor.evidence.source.running_sums import summed_read
from auditor.model import Edit, Finding, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob

LOG_EVERY = 50
"""Steps between two logs in the patch: rarely enough that a wait costs nothing, often enough to
follow a curve.
"""

THROTTLED = (
    f"the line only logs, so training computes the same; the log has every {LOG_EVERY}th step"
)
WRITTEN = f"the file that it writes has every {LOG_EVERY}th line then, and somebody may read it"
SUMMED = (
    "the sum is a tensor on the device then, in the value's own precision (float32 for most "
    "losses) instead of float64"
)


LOGS_OR_SUMS = (
    Permit("throttle", value=str(LOG_EVERY), safe=True),
    Permit("rename_call", (".item",), value=r"detach\(\)"),
)
"""What :meth:`ReadingRule.patch_of` asks for."""


@dataclass(frozen=True)
class ReadHints:
    """What the patch of a reading line needs to know.

    ``once``: it reads at most once in a step. ``library``: the library that reads on its behalf.
    ``logs``: ``screen``, ``tracker`` or ``file``, if it does nothing but log there. ``summed``: where the ``.item()`` of a
    running sum stands on it. ``phases``: it reads in phases, many times in each.
    """

    once: bool = False
    library: str = ""
    logs: str | None = None
    summed: Span | None = None
    phases: bool = False


@dataclass(frozen=True)
class ReadingRule(Rule):
    """Base of the rules about reads; no rule itself."""

    cause = "read"

    share: float = knob(
        0.5, "Share of the diagnosed steps from which a line that does it is a warning."
    )
    rare: float = knob(0.1, "Share of the diagnosed steps below which it is not reported.")
    interval: int = knob(
        10, "At a constant distance of this many steps or more it is rate-limited and not reported."
    )
    enough: int = knob(
        10, "With fewer diagnosed steps only a line that does it on every step is reported."
    )

    def report(
        self, reads: Reads, places: Iterable[Place], say: Callable[[Place], str]
    ) -> Iterator[Finding]:
        """A finding for each place that does it often enough; a note where it is not usual, a
        library's doing, or where the program puts nothing on a GPU that it is offered.
        """
        for place in places:
            weight = place.pattern.weight(
                usual=self.share, rare=self.rare, interval=self.interval, enough=self.enough
            )
            if weight is None:
                continue
            harmless = weight == "sometimes" or place.library or reads.gpu_unused
            yield Finding(
                place.site,
                f"{say(place)}{place.pattern.phases}",
                steps=len(place.pattern.seen),
                per_step=place.per_step,
                lost_us_per_step=place.held_us,
                basis="none" if place.held_us is None else "estimated",
                seen_on=reads.device,
                severity=Severity.NOTE if harmless else None,
                facts=place.facts,
                places=place.found_at,
                hints=ReadHints(
                    all(read.n == 1 for read in place.reads),
                    place.library,
                    phases=place.pattern.often,
                ),
            )

    def less_often(self, findings: Iterable[Finding], source: Source) -> Iterator[Finding]:
        """The findings, each with what its patch needs to know: whether its line only logs, or adds
        to a running sum; and with who calls a helper that reads.
        """
        for finding in findings:
            site, hints = finding.site, finding.hints_as(ReadHints)
            # A line that runs several times in a step stands in a loop of its own, which no counter
            # of the steps is for.
            logs = source.logs_at(site) if hints.once and site is not None else None
            summed = None if site is None else summed_read(source, site, within=not hints.once)
            called = () if site is None else callers_named(source, site)
            yield replace(
                finding,
                facts=(*finding.facts, *called),
                hints=replace(hints, logs=logs, summed=summed),
            )

    @staticmethod
    def advice(finding: Finding, own: str) -> str:
        """What to do about a read of the line's ``own``; of one inside a library nothing can be
        written differently there.
        """
        hints = finding.hints_as(ReadHints)
        library = hints.library
        if not library and hints.phases:
            return (
                "In an evaluation add up on the device and read once at its end; in a rollout act in "
                "several environments at once, so that one read serves all of them, or keep a small "
                "policy on the host."
            )
        if not library:
            return own
        return (
            f"The read is inside {library}, which is not yours to edit: look for an option that "
            "makes it read less often (how "
            "often it logs, shows or checks), or call it on fewer steps."
        )

    def patch_of(self, finding: Finding) -> tuple[Edit, ...]:
        """Log every so many steps, or sum on the device; nothing where the line does something else
        with the value.
        """
        site, hints = finding.site, finding.hints_as(ReadHints)
        if site is None:
            return ()
        if hints.logs is not None:
            shown = hints.logs != "file"
            return (
                Edit(
                    site,
                    "throttle",
                    value=str(LOG_EVERY),
                    safe=shown,
                    reason=THROTTLED if shown else WRITTEN,
                ),
            )
        if hints.summed is None:
            return ()
        return (
            Edit(site, "rename_call", "item", value="detach()", reason=SUMMED, span=hints.summed),
        )
