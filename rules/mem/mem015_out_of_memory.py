"""MEM015: memory ran out, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.what_if import OutOfMemory
from auditor.evidence.source.call_arguments import PLACES, Home, allocator_home
from auditor.evidence.source.config_values import Configs
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

WHY = {
    "demand": "the tensors in use fill the memory; this is real demand, not fragmentation",
    "fragmentation": "enough memory was free, but only in pieces that are too small (fragmentation)",
    "elsewhere": "enough memory was free in one piece, but in a pool or on a "
    "stream that this request could not use",
    "unknown": "the size of the request is not known",
}


@dataclass(frozen=True)
class RanOutOfMemory(Rule):
    """The program ran out of device memory."""

    code = "MEM015"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True

    lines: int = knob(10, "Show at most this many lines, those that hold most memory.")

    def detect(self, oom: OutOfMemory, machine: Machine, configs: Configs) -> Iterator[Finding]:
        if not oom.happened:
            return
        asked = (
            f"{amounts.size(oom.requested)} were requested"
            if oom.requested is not None
            else "a request failed"
        )
        if self._by_segment(oom):
            asked += (
                " (the allocator asks the device for a segment of "
                f"{amounts.size(oom.tried or 0)} to hold it)"
            )
        first = next((holder for holder in oom.holders if holder.site is not None), None)
        held = (
            f"; most is held by tensors created at {first.site} ({amounts.size(first.size)})"
            if first is not None
            else ""
        )
        where = "in the rehearsal memory" if machine.simulated else "memory"
        fitting = [each.setting for each in oom.what_ifs if not each.ooms]
        yield Finding(
            oom.site,
            f"{where} ran out: {asked}, {amounts.size(oom.live)} of {amounts.size(oom.reserved)} "
            f"reserved on GPU {oom.device} were in use and the largest free piece was "
            f"{amounts.size(oom.largest_free)}: {WHY[oom.kind]}{held}",
            basis=machine.bytes_basis,
            seen_on="snapshot",
            facts=(
                *self._figures(oom),
                *(holder.row for holder in oom.holders[: self.lines]),
                *self._replays(oom),
            ),
            remedy=_remedy(oom.kind, fitting, allocator_home(configs)),
        )

    @staticmethod
    def _by_segment(oom: OutOfMemory) -> bool:
        """Whether torch's message names another size: that of the segment, not of the request."""
        return (
            oom.requested is not None
            and oom.tried is not None
            and amounts.size(oom.tried) != amounts.size(oom.requested)
        )

    def _figures(self, oom: OutOfMemory) -> Iterator[tuple[str, str]]:
        if oom.requested is not None:
            yield "requested", amounts.size(oom.requested)
        if self._by_segment(oom):
            yield (
                "segment to hold it",
                f"{amounts.size(oom.tried or 0)}, the size in torch's message",
            )
        yield "free inside reserved", amounts.size(oom.free_inside)
        yield "largest free piece", amounts.size(oom.largest_free)
        if oom.device_free is not None:
            yield "free on the device", amounts.size(oom.device_free)

    def _replays(self, oom: OutOfMemory) -> Iterator[tuple[str, str]]:
        yield from (each.row for each in oom.what_ifs)
        if oom.why_no_what_if:
            yield "other settings", oom.why_no_what_if


def _remedy(kind: str, fitting: list[str], home: Home | None) -> Remedy:
    """The first setting that fits, written where one is set now (``home``)."""
    if fitting:
        return Remedy(
            f"With PYTORCH_CUDA_ALLOC_CONF={fitting[0]} a replay of the same allocations fits; it cannot "
            "know what would have come after the error.",
            (home.edit(fitting[0], safe=True, reason=PLACES),) if home is not None else (),
            config={"PYTORCH_CUDA_ALLOC_CONF": fitting[0]},
        )
    return Remedy(
        "Hold less memory at this point: free what the largest holders keep, checkpoint "
        "activations, or use a smaller batch with gradient accumulation. No allocator setting "
        "makes room here."
        if kind == "demand"
        else "Look at the largest holders first; allocate long-lived tensors before short-lived ones."
    )
