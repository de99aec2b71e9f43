"""Verdicts by family of rules, as pages list them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from auditor.model import Finding, Report, Severity, Status, Verdict

STATUSES: tuple[Status, ...] = get_args(Status)

FAMILIES = {
    "SYNC": "Host waits for the device",
    "DATA": "Input pipeline",
    "GRAPH": "Autograd graph",
    "MEM": "Memory",
    "NUM": "Numerics",
    "AMP": "Mixed precision",
    "CFG": "Settings",
    "OPT": "Optimizer",
    "KERN": "Kernels",
    "DIST": "Distributed",
    "CKPT": "Checkpoints",
    "TIME": "Step time",
    "WASTE": "Work thrown away",
    "COMP": "torch.compile",
    "TRAIN": "Does it train what it says",
}


@dataclass(frozen=True)
class Family:
    """The verdicts of one family of rules, found first."""

    code: str
    label: str
    verdicts: tuple[Verdict, ...]

    def count(self, status: Status) -> int:
        """How many rules of the family came to ``status``."""
        return sum(verdict.status == status for verdict in self.verdicts)


def family_of(code: str) -> str:
    """The letters of a rule's code: ``SYNC`` of ``SYNC001``."""
    return code.rstrip("0123456789") or code


def is_untrue(finding: Finding) -> bool:
    """True of an error of TRAIN: what the step learns matters before what it costs."""
    return finding.severity is Severity.ERROR and family_of(finding.code) == "TRAIN"


def families(report: Report) -> tuple[Family, ...]:
    """All verdicts by family: known families in their fixed order, others after them."""
    grouped: dict[str, list[Verdict]] = {code: [] for code in FAMILIES}
    for verdict in report.verdicts:
        grouped.setdefault(family_of(verdict.code), []).append(verdict)
    return tuple(
        Family(
            code,
            FAMILIES.get(code, code),
            tuple(sorted(verdicts, key=lambda v: (STATUSES.index(v.status), v.code))),
        )
        for code, verdicts in grouped.items()
        if verdicts
    )
