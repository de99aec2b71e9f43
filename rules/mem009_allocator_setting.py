"""MEM009: an allocator setting that would help, by a replay of the recorded history."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Configs, Machine, WhatIf
from auditor.evidence.source.argument_origin import PLACES, Home, allocator_home
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
    """
    Another allocator setting would need less memory for the same program.

    ## What it finds
    The recorded allocation history is run again through a simulation of torch's caching allocator,
    under ``expandable_segments``, ``max_split_size_mb`` and ``roundup_power2_divisions``. A setting
    is named only if it avoids a retry or an out-of-memory error, or reserves clearly less; it is a
    warning only in the first case.

    ## Why it costs
    Memory that lies in holes between live blocks is paid for and cannot be used. A retry waits for
    the device and gives the whole cache back.

    ## Example
    ```python
    # needs: cuda
    import torch

    kept = []

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept.append(torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda"))
        del kept[:-8]
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    kept = [torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept[0].zero_()
        kept.append(kept.pop(0))
    ```
    Or the setting that the finding names.

    ## When to ignore
    The memory is not needed by anything else, and no retry happened.

    ## Sources
    The simulation asks the device for the same segments as the real allocator on 13 recorded
    histories of torch 2.0 to 2.11. Where the history begins with memory in use, the segments are
    taken over as they were then, and a setting counts from that moment on. Nothing is advised where
    the history does not say why memory went back to the device, or where the replay of the recorded
    settings misses the recorded peak by more than 5 %. ``garbage_collection_threshold`` is not
    tried: without a memory fraction torch ignores it.
    """

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
