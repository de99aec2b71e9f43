"""MEM009: an allocator setting that would help, by a replay of the recorded history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.what_if import WhatIf
from auditor.evidence.source.argument_origin import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.model import Finding, Remedy, Severity
from auditor.permit import ALLOCATOR
from auditor.rule import Rule, knob

MIB = 2**20


@dataclass(frozen=True)
class Hints:
    """The best setting of the allocator, and the one line that sets it now."""

    setting: str
    set_at: Home | None


@dataclass(frozen=True)
class AllocatorSettingWouldHelp(Rule):
    """Another allocator setting would need less memory for the same program."""

    code = "MEM009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True
    edits = ALLOCATOR

    share: float = knob(
        0.1,
        "Share of the reserved memory that a setting must save to be named where nothing failed.",
    )
    least_mib: float = knob(256.0, "MiB that it must save as well.")

    def detect(self, what_if: WhatIf, machine: Machine, configs: Configs) -> Iterator[Finding]:
        before, least = (
            what_if.recorded,
            max(self.share * what_if.recorded.peak_reserved, self.least_mib * MIB),
        )
        if not before.ooms and not before.retries and what_if.may_save < least:
            return
        best = min(
            what_if.others,
            key=lambda each: (each.ooms, each.retries, each.peak_reserved),
            default=None,
        )
        if best is None:
            return
        saved = before.peak_reserved - best.peak_reserved
        avoided = _avoided(before.ooms - best.ooms, before.retries - best.retries)
        if not avoided and saved < least:
            return
        told = (
            avoided
            or f"reserves {amounts.size(best.peak_reserved)} instead of "
            f"{amounts.size(before.peak_reserved)}"
        )
        yield Finding(
            None,
            f"the same allocations with {best.setting}: {told}",
            lost_bytes=saved if saved > 0 else None,
            basis="estimated",
            seen_on="snapshot",
            severity=None if avoided else Severity.NOTE,
            facts=(*what_if.since, before.row, *(each.row for each in what_if.others)),
            hints=Hints(best.setting, allocator_home(configs)),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        hints = finding.hints_as(Hints)
        setting, home = hints.setting, hints.set_at
        return Remedy(
            f"Set PYTORCH_CUDA_ALLOC_CONF={setting} before torch starts, and measure again: the "
            "replay knows the order of the "
            "allocations that was recorded, not what else changes.",
            (home.edit(setting, safe=True, reason=PLACES),) if home is not None else (),
            config={"PYTORCH_CUDA_ALLOC_CONF": setting},
        )


def _avoided(ooms: int, retries: int) -> str:
    if ooms > 0:
        return "does not run out of memory"
    return (
        f"avoids {retries} allocator retr{'ies' if retries > 1 else 'y'}"
        if retries > 0 and not ooms
        else ""
    )
