"""The memory snapshot of a recording, or one that stands alone: plain data in torch's schema, read
once, whatever form it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from auditor.evidence.snapshot.layout import CHANGES, check
from auditor.evidence.snapshot.unpickle import RefusedPickle, load_plain
from auditor.evidence.table import Evidence
from auditor.recordings.folder import AT_OOM
from auditor.rule import NotLooked

BLOCK_LIMIT = 2_000_000
"""Blocks that are read at most: a real snapshot of 72 GB has a few thousand; one written to hang us
names one list again and again.
"""
EVENT_LIMIT = 5_000_000
"""Events of one device that are read at most, for the same reason."""

Event = Mapping[str, Any]


@dataclass(frozen=True)
class SnapshotData:
    """What torch wrote. ``traces`` has one history for each device, all empty where none was
    recorded.
    """

    name: str
    segments: Sequence[Event]
    traces: Sequence[Sequence[Event]]
    settings: Mapping[str, Any]
    at_oom: bool

    @property
    def devices(self) -> tuple[int, ...]:
        """Devices with memory or with a history."""
        told = {
            number
            for number, trace in enumerate(self.traces)
            if any(event["action"] in CHANGES for event in trace)
        }
        return tuple(sorted({int(segment.get("device", 0)) for segment in self.segments} | told))

    def of(self, device: int) -> Sequence[Event]:
        """The segments of one device."""
        return [segment for segment in self.segments if segment.get("device", 0) == device]

    def trace(self, device: int) -> Sequence[Event]:
        """The history of one device, the oldest event first; empty where there is none."""
        trace = self.traces[device] if device < len(self.traces) else ()
        return trace if any(event["action"] in CHANGES for event in trace) else ()

    def as_torch(self) -> dict[str, Any]:
        """In the form of ``torch.cuda.memory._snapshot()``."""
        return {
            "segments": self.segments,
            "device_traces": self.traces,
            "allocator_settings": self.settings,
        }


def snapshot_of(evidence: Evidence) -> SnapshotData:
    """The recording's snapshot, read once.

    Raises :class:`NotLooked` where there is none, it is no plain data, or it has another layout
    than torch's.
    """
    return evidence.once(_load)


def has_history(evidence: Evidence) -> bool:
    """Whether the snapshot tells how its memory came about; also of one that cannot be read, since
    another would be no better.
    """
    try:
        return any(snapshot_of(evidence).traces)
    except NotLooked:
        return True


def _load(evidence: Evidence) -> SnapshotData:
    path = evidence.recording.snapshot
    if path is None:
        raise NotLooked("no CUDA memory snapshot was recorded")
    try:
        return _told(
            path.name, load_plain(path), named=path.name in AT_OOM and evidence.bare != "snapshot"
        )
    except RefusedPickle as refused:
        raise NotLooked(str(refused)) from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise NotLooked(f"the memory snapshot has another layout than torch's: {error}") from None


def _told(name: str, data: Any, *, named: bool) -> SnapshotData:
    """From ``_snapshot()`` of any age: the bare list of ``memory_snapshot()`` has no history,
    2023's no settings.
    """
    form: Mapping[str, Any] = {"segments": data} if isinstance(data, list) else data
    segments, traces = form["segments"], form.get("device_traces") or ()
    if sum(len(segment["blocks"]) for segment in segments) > BLOCK_LIMIT:
        raise NotLooked(f"the memory snapshot has more than {BLOCK_LIMIT} blocks")
    if sum(len(trace) for trace in traces) > EVENT_LIMIT:
        raise NotLooked(f"the memory snapshot's history has more than {EVENT_LIMIT} events")
    check(form)
    ended = any(_ends_in_oom(trace) for trace in traces)
    return SnapshotData(
        name, segments, traces, form.get("allocator_settings") or {}, ended or named
    )


def _ends_in_oom(trace: Sequence[Event]) -> bool:
    last = next(
        (event["action"] for event in reversed(trace) if event["action"] in (*CHANGES, "oom")), ""
    )
    return bool(last == "oom")
