"""CKPT010: of a checkpoint the optimizer is resumed and its scheduler is not, or the other way
round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.statements import shorten
from auditor.evidence.table import Rows
from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule

from .rows import PartialResumeRow


@dataclass(frozen=True)
class Hints:
    """What to load: ``scheduler.load_state_dict(state["scheduler"])``."""

    call: str = ""


@dataclass(frozen=True)
class ResumedInPart(Rule):
    """A checkpoint holds a state that the resumed run does not load."""

    code = "CKPT010"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, resumes: Rows[PartialResumeRow], machine: Machine) -> Iterator[Finding]:
        told: set[tuple[int, str]] = set()
        for each in resumes:
            if (each.at, each.left_out) in told:
                continue
            told.add((each.at, each.left_out))
            places = each.site_of(each.file_at), each.site
            yield Finding(
                each.site,
                _said(each),
                steps=1,
                seen_on=machine.device,
                hints=Hints(_call(each)),
                places=tuple(FoundAt(site, shorten(site.text)) for site in places),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(f"Load it here too: {finding.hints_as(Hints).call}.")


def _said(resume: PartialResumeRow) -> str:
    if resume.left_out == "scheduler":
        return (
            f"the optimizer's state is loaded here, and that of its {resume.owner} is not: the file "
            f"has it under {resume.key!r} after {resume.saved} of its steps, and training went on "
            f"with step {resume.now} of the schedule"
        )
    return (
        f"the scheduler's state is loaded here, and that of its {resume.owner} is not: the file has "
        f"it under {resume.key!r}, and training went on without any"
    )


def _call(resume: PartialResumeRow) -> str:
    entry = "".join(f'["{part}"]' for part in resume.key.split("."))
    return f"{resume.left_out}.load_state_dict(checkpoint{entry})"
