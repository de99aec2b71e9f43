"""NUM015: NaN or infinities that came into the step with its data and reached the weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.source.statements import shorten
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule

from .nonfinite import Birth, Nonfinite
from .nonfinite_data import Leak, handed_on, leak, prepared

LETS = {
    "division": "it divides by what can be 0",
    "logarithm": "nothing keeps what it is given above 0",
    "missing": "missing values of the table that was read pass through",
    "written": "it writes such a value",
}


@dataclass(frozen=True)
class BatchNotFinite(Rule):
    """A batch holds NaN or infinities, and they reach the weights."""

    code = "NUM015"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True
    everywhere = True

    def detect(self, nonfinite: Nonfinite, machine: Machine, source: Source) -> Iterator[Finding]:
        birth = nonfinite.birth
        if birth is None or not birth.came_with_data:
            return
        bad = birth.inputs[0].share_nonfinite if birth.inputs else None
        share = f" ({bad:.3g} of it)" if bad else ""
        value = "NaN" if birth.value == "nan" else birth.value
        reached = (
            f"after step {nonfinite.step} {nonfinite.tensors[0]} was not finite"
            if nonfinite.tensors
            else ""
        )
        made = _made(birth, source)
        path = [] if made is None else [made.site]
        path += [site for site in (birth.entered, birth.site) if site is not None]
        yield Finding(
            path[0] if path else None,
            f"the data of step {birth.step} held {value}{share} {_used(birth, made)}; {reached}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            seen_on=machine.device,
            facts=nonfinite.facts,
            places=tuple(_places(path)),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look for the sample: check isfinite in the dataset or the collate function, and drop "
            "or repair it there."
        )


def _made(birth: Birth, source: Source) -> Leak | None:
    """The line that can have made it, else the one where the dataset hands it on."""
    from_the_start = birth.step == 0
    kind = "nan" if birth.value == "nan" else "inf"
    made = leak(source, kind, from_the_start=from_the_start)
    if made is None and from_the_start and birth.value == "-inf":
        made = prepared(source)
    return made or (handed_on(source, birth.dataset) if birth.dataset else None)


def _used(birth: Birth, made: Leak | None) -> str:
    """How it came to the operator that used it first."""
    first = f"first used at {_quoted(birth.site)}"
    if made is not None and made.kind == "handed":
        return f"that the dataset hands on here; {first}"
    if made is not None:
        return f"which can come from this line ({LETS[made.kind]}); {first}"
    if birth.entered in (None, birth.site):
        return "when it was first used here"
    return f"when it went into the model here; {first}"


def _quoted(site: Site | None) -> str:
    return "a line that was not seen" if site is None else f"{site}, `{shorten(site.text)}`"


def _places(path: Sequence[Site]) -> Iterator[FoundAt]:
    """The way of the value, where it is more than one line."""
    sites = list(dict.fromkeys(path))
    return (FoundAt(site, shorten(site.text)) for site in sites if len(sites) > 1)
