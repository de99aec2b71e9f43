"""What the rules about lines of the step share: which are reported, and what is said of one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from auditor.batch_means import Estimate
from auditor.evidence.recorded.lines import Line
from auditor.evidence.source.files import Source, shorten
from auditor.model import Basis, Edit, Finding, FoundAt, Remedy, Site
from auditor.rule import Rule, knob


def between(finding: Finding, price: Estimate | None) -> Finding:
    """The finding with the interval of its price in us per step, if enough was seen."""
    if price is None:
        return finding
    return replace(finding, lost_us_per_step_low=price.low, lost_us_per_step_high=price.high)


L = TypeVar("L", bound=Line[Any])


class LineReport(Rule):
    """Base of rules that report lines, and choose them by a measure of their own; no rule itself."""

    def report(
        self,
        line: Line[Any],
        message: str,
        *,
        site: Site | None = None,
        basis: Basis = "none",
        **more: Any,
    ) -> Finding:
        """A finding about one line, or about the ``site`` that makes it do so. Its host time is the
        price where there is a ``basis`` for one, with an interval where it was measured.
        """
        found = Finding(
            site or line.site,
            f"{message}{line.pattern.phases}",
            **{
                "steps": len(line.pattern.seen),
                "per_step": line.per_step,
                "lost_us_per_step": None if basis == "none" else line.us_per_step,
                "basis": basis,
                "facts": line.facts,
                **line.told,
                **more,
            },
        )
        return between(found, line.price) if basis == "measured" else found

    def dropped(
        self, line: Line[Any], source: Source, call: str, *, safe: bool = False, reason: str
    ) -> Remedy:
        """``advice``, with the edit that drops the call where it is a statement of its own."""
        alone = source.stands_alone(line.site, call)
        edit = Edit(line.site, "drop_statement", call=call, safe=safe, reason=reason)
        return Remedy(self.advice, (edit,) if alone else ())


@dataclass(frozen=True)
class LineRule(LineReport):
    """Base of the rules about what the step does at a line; no rule itself.

    A rule asks for the lines of its rows and says what each of the usual ones does::

        def detect(self, calls: Lines[CallRow]) -> Iterator[Finding]:
            for line in self.usual(calls.lines()):
                yield self.report(line, f"... on {line.pattern}: ...")
    """

    share: float = knob(0.5, "Report a line that does it on at least this share of the steps.")

    def usual(self, lines: Iterable[L]) -> Iterator[L]:
        """Those that do it on most of enough steps, or in phases and as often."""
        return (line for line in lines if line.pattern.usual(self.share))


def places_of(*sites: Site | None) -> tuple[FoundAt, ...]:
    """The lines that are known, in their order; empty if they are one."""
    known = {site.place: site for site in sites if site is not None}
    if len(known) < 2:
        return ()
    return tuple(FoundAt(known[line], shorten(known[line].text)) for line in sorted(known))
