"""MEM004, 5 and 9: memory that the allocator holds and the program does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.state_at import Snapshot
from auditor.evidence.snapshot.what_if import WhatIf
from auditor.evidence.source.call_arguments import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.model import Basis, Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .memory import DeviceMemory

MIB = 2**20


@dataclass(frozen=True)
class ReservedMemoryNeverNeeded(Rule):
    """Reserved device memory was never needed, not even at the peak."""

    code = "MEM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(0.25, "Report only if this share of the reserved memory is unneeded.")
    least_mib: float = knob(
        256.0, "Report only at least this many unneeded MiB, unless the allocator ran short."
    )
    share_if_pressed: float = knob(
        0.1, "The share to use instead if the allocator retried or ran out of memory."
    )

    def detect(self, memory: DeviceMemory, machine: Machine) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        if not memory.fragmented(
            share=self.share,
            least_bytes=int(self.least_mib * MIB),
            share_if_pressed=self.share_if_pressed,
        ):
            return
        yield Finding(
            None,
            f"{amounts.size(memory.unneeded_bytes)} of {amounts.size(memory.reserved_at_peak)} "
            f"reserved ({amounts.percent(memory.unneeded_share)}) were never needed, not even at the peak",
            steps=len(memory.steps),
            lost_bytes=memory.unneeded_bytes,
            basis=machine.bytes_basis,
            facts=memory.facts,
        )

    def in_snapshot(self, allocations: Allocations) -> Iterator[Finding]:
        for course in allocations.devices:
            least = int(self.least_mib * MIB)
            if not course.fragmented(
                share=self.share, least_bytes=least, share_if_pressed=self.share_if_pressed
            ):
                continue
            yield Finding(
                None,
                f"{amounts.size(course.unneeded_bytes)} of {amounts.size(course.reserved_at_peak)} "
                f"reserved on GPU {course.device} ({amounts.percent(course.unneeded_share)}) were "
                "never needed, not even at the peak",
                lost_bytes=course.unneeded_bytes,
                basis="measured",
                seen_on="snapshot",
                facts=course.facts,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets segments grow "
            "instead of leaving holes. It helps if tensor sizes vary from step to step, does not "
            "reduce memory that is really in use, and is not available on all platforms. Measure "
            "the peak again.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )


@dataclass(frozen=True)
class BlockPinsSegment(Rule):
    """A small live block keeps a large free segment."""

    code = "MEM005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(0.25, "Report only if this share of the reserve is unneeded (as MEM004).")
    least_mib: float = knob(256.0, "Report only at least this many unneeded MiB (as MEM004).")
    share_if_pressed: float = knob(
        0.1,
        "The share to use instead if the allocator retried or ran out of memory (as MEM004).",
    )
    pinned_mib: float = knob(
        64.0, "Show only lines that keep at least this many free MiB reserved."
    )
    lines: int = knob(3, "Show at most this many lines.")

    def detect(
        self, memory: DeviceMemory, snapshot: Snapshot, machine: Machine
    ) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("the CUDA allocator was not used")
        fragmented = memory.fragmented(
            share=self.share,
            least_bytes=int(self.least_mib * MIB),
            share_if_pressed=self.share_if_pressed,
        )
        if not fragmented and not snapshot.at_oom:
            return
        yield from self._pins(snapshot, machine.bytes_basis)

    def in_snapshot(self, allocations: Allocations, snapshot: Snapshot) -> Iterator[Finding]:
        least = int(self.least_mib * MIB)
        for course in allocations.devices:
            if course.fragmented(
                share=self.share, least_bytes=least, share_if_pressed=self.share_if_pressed
            ):
                yield from self._pins(snapshot.on(course.device), "measured")

    def _pins(self, snapshot: Snapshot, basis: Basis) -> Iterator[Finding]:
        pins = [
            pin for pin in snapshot.pins()[: self.lines] if pin.free_bytes >= self.pinned_mib * MIB
        ]
        if not pins and snapshot.untold_bytes >= self.pinned_mib * MIB:
            raise NotLooked(
                "the blocks that keep the segments were allocated before the allocation history "
                "began"
            )
        for pin in pins:
            yield Finding(
                pin.site,
                f"{amounts.count(pin.blocks, 'live block')} ({amounts.size(pin.live_bytes)}) "
                f"allocated here keep{'s' * (pin.blocks == 1)} "
                f"{amounts.count(len(pin.segments), 'segment')} "
                f"reserved in which {amounts.size(pin.free_bytes)} are free",
                lost_bytes=pin.free_bytes,
                basis=basis,
                seen_on="snapshot",
                facts=(
                    ("segments", str(len(pin.segments))),
                    ("reserved in all", amounts.size(snapshot.reserved)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Allocate long-lived tensors before short-lived ones (once, before the loop), or copy what "
            "is kept to the host. expandable_segments:True avoids most such holes.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )


@dataclass(frozen=True)
class AllocatorSettingWouldHelp(Rule):
    """Another allocator setting would need less memory for the same program."""

    code = "MEM009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(
        0.1,
        "Name a setting only if it saves this share of the reserve, where nothing failed.",
    )
    least_mib: float = knob(256.0, "Name a setting only if it saves this many MiB.")

    def detect(self, what_if: WhatIf, configs: Configs) -> Iterator[Finding]:
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
            remedy=_remedy(best.setting, allocator_home(configs)),
        )


def _remedy(setting: str, home: Home | None) -> Remedy:
    """To be written where one is set now (``home``)."""
    return Remedy(
        f"Set PYTORCH_CUDA_ALLOC_CONF={setting} before torch starts, and measure again: the "
        "replay only knows the recorded order of allocations.",
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
