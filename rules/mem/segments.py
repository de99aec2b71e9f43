"""MEM004, 5 and 9: memory that the allocator holds and the program does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.segments import Snapshot
from auditor.evidence.snapshot.what_if import WhatIf
from auditor.evidence.source.argument_origin import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.model import Basis, Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from .memory import DeviceMemory

MIB = 2**20


@dataclass(frozen=True)
class ReservedMemoryNeverNeeded(Rule):
    """Reserved device memory was not needed even at the peak."""

    code = "MEM004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(0.25, "Share of the reserved memory unneeded at the peak.")
    least_mib: float = knob(
        256.0, "Unneeded MiB below which nothing is reported, unless the allocator ran short."
    )
    share_if_pressed: float = knob(
        0.1, "The share that is enough where the allocator retried or ran out of memory."
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
            f"reserved ({amounts.percent(memory.unneeded_share)}) were not needed even at the peak",
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
                "not needed even at the peak",
                lost_bytes=course.unneeded_bytes,
                basis="measured",
                seen_on="snapshot",
                facts=course.facts,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, which lets segments grow "
            "instead of leaving holes; it helps where sizes vary from step to step, does nothing "
            "about memory that is really in use, and is not available on all platforms: measure "
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

    share: float = knob(0.25, "Share of the reserved memory unneeded at the peak (as MEM004).")
    least_mib: float = knob(256.0, "Unneeded MiB (as MEM004).")
    share_if_pressed: float = knob(
        0.1,
        "The share that is enough where the allocator retried or ran out of memory (as MEM004).",
    )
    pinned_mib: float = knob(64.0, "Free MiB that one line must pin to be shown.")
    lines: int = knob(3, "Lines shown at most, those that pin most.")

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
                "was recorded"
            )
        for pin in pins:
            yield Finding(
                pin.site,
                f"{amounts.count(pin.blocks, 'live block')} ({amounts.size(pin.live_bytes)}) "
                f"allocated here keep{'s' * (pin.blocks == 1)} "
                f"{amounts.count(len(pin.segments), 'segment')} "
                f"with {amounts.size(pin.free_bytes)} free",
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
            "Allocate what stays before what comes and goes (once, before the loop), or copy what "
            "is kept to the host; expandable_segments:True avoids most such holes.",
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
        "Share of the reserved memory that a setting must save to be named where nothing failed.",
    )
    least_mib: float = knob(256.0, "MiB that it must save as well.")

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
        "replay knows the order of the allocations that was recorded, not what else changes.",
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
