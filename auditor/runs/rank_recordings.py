"""The recordings of a run's ranks: judged on the one the others wait for, with facts of all."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.errors import AuditProblem
from auditor.evidence.recorded.steps import Steps, device_peak, own_times
from auditor.evidence.table import Evidence
from auditor.model import Rank
from auditor.recordings.folder import MANIFEST, TRACE, Recording, UnreadableRecording
from auditor.recordings.schema.data import BatchRow
from auditor.recordings.schema.run import StepRow
from auditor.runs.finalize import FOLLOWED  # not of child_process: nothing is run here
from auditor.runs.plan import RANK_FOLDER

if TYPE_CHECKING:
    from auditor.timeline import Fleet

SLOWER = 1.05
"""Times rank 0's median step from which another rank is called the slowest: less is noise."""

COLLECTIVES = os.path.join("torch", "distributed") + os.sep
"""In the path of a frame that waits for other ranks."""

NO_DEVICE = Rank(None, "", "", "", 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, None)
"""A rank whose trace shows no device: nothing is known of what it computed and communicated."""


def is_ranked(folder: Path) -> bool:
    """Whether ``folder`` holds one recording for each rank."""
    return any(folder.glob(f"{RANK_FOLDER}*/{MANIFEST}"))


class RankedRecording(Recording):
    """Opens as the recording of one rank; ``members`` are all of them, in order.

    Judged is the rank that failed first, else the one that waits least in collectives (it comes
    last to them), else the one with the longest steps, else rank 0.
    """

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.members, unread = _members(folder)
        judged, why = self._judged()
        super().__init__(judged.folder)
        number = judged.rank
        self.manifest |= {
            "judged": f"rules were asked of rank {number}, {why}",
            "warnings": [*unread, *judged.manifest.get("warnings", ()), *self._failures(number)],
        }
        if len(_hung(self.members)) > 1:
            self.manifest["error"] = {**self.manifest["error"], "traceback": self._stacks(judged)}

    @cached_property
    def ranks(self) -> Fleet | None:
        """Facts of all ranks from their traces; None if not every rank wrote one."""
        from auditor.timeline import fleet

        files = [file for file in map(_trace, self.members) if file.is_file()]
        if len(files) < max(2, len(self.members)):
            return None
        try:
            return fleet(files)
        except AuditProblem:
            return None

    def rows_of_ranks(self, traced: Mapping[str, Rank]) -> tuple[Rank, ...]:
        """One row a rank: what its trace says (``traced``), with undisturbed times and memory."""
        return tuple(_row(each, traced.get(str(_trace(each)))) for each in self.members)

    def _judged(self) -> tuple[Recording, str]:
        failed = [each for each in self.members if each.outcome != "completed"]
        own = [
            each for each in failed if (each.manifest.get("error") or {}).get("type") != FOLLOWED
        ]
        hung = _hung(own)
        outside = [each for each in hung if COLLECTIVES not in _traceback(each)]
        if own == hung and 0 < len(outside) < len(hung):
            return outside[0], "which was in no collective while others waited in one"
        if own:  # the others lose their connection to it, and fail as well
            return min(
                own, key=lambda each: (each.manifest.get("error") or {}).get("time_us") or 0
            ), "which failed first"
        least = self.ranks.least_waiting if self.ranks is not None else None
        for each in self.members if least is not None else ():
            if str(_trace(each)) == least.row.file:  # type: ignore[union-attr]
                return each, "which waits least in collectives: the others wait for it"
        slowest = max(self.members, key=_median_us)
        if _median_us(slowest) > SLOWER * _median_us(self.members[0]):
            return slowest, "which has the longest steps"
        return self.members[0], "no rank is slower than it by more than 5 %"

    def _stacks(self, judged: Recording) -> str:
        """Where each rank was when time was over, the judged one first; equal stacks stand once."""
        ranks: dict[str, list[str]] = {}
        for each in sorted(_hung(self.members), key=lambda each: each is not judged):
            stack = _traceback(each).partition("\n")  # the first line names a thread by its address
            ranks.setdefault(stack[2] or stack[0], []).append(str(each.rank))
        return "\n".join(
            f"{'rank' if len(numbers) == 1 else 'ranks'} {', '.join(numbers)}:\n{stack}"
            for stack, numbers in ranks.items()
        )

    def _failures(self, judged: int) -> list[str]:
        failed = [each for each in self.members if each.outcome != "completed"]
        hung = _hung(failed)
        if len(hung) > 1 and hung == failed:
            return [f"{len(hung)} ranks were still running when the time was over"]
        shown = [
            f"the error that is shown is that of rank {judged}"
            for each in failed
            if each.rank == judged and len(failed) > 1
        ]
        return shown + [
            f"rank {each.rank} did not end well either: {_ended(each)}"
            for each in failed
            if each.rank != judged
        ]


def _trace(recording: Recording) -> Path:
    return recording.trace or recording.folder / TRACE


def _hung(recordings: Iterable[Recording]) -> list[Recording]:
    return [each for each in recordings if each.outcome == "timeout"]


def _traceback(recording: Recording) -> str:
    return str((recording.manifest.get("error") or {}).get("traceback") or "")


def _ended(recording: Recording) -> str:
    kind = (recording.manifest.get("error") or {}).get("type")
    return f"{recording.manifest['outcome']}{f' ({kind})' if kind else ''}"


def _members(folder: Path) -> tuple[list[Recording], list[str]]:
    found, unread = [], []
    for path in sorted(
        folder.glob(f"{RANK_FOLDER}*"), key=lambda path: (len(path.name), path.name)
    ):
        try:
            found.append(Recording(path))
        except UnreadableRecording as error:
            unread.append(f"{path.name} is left out: {error}")
    manifest = found[0].manifest if found else {}
    expected = manifest.get("played") or range(int(manifest.get("world_size") or 0))
    if len(found) + len(unread) < len(expected):
        there = {each.rank for each in found}
        unread += [
            f"rank {rank} recorded nothing"
            for rank in expected
            if rank not in there and not (folder / f"{RANK_FOLDER}{rank}").exists()
        ]
    if not found:
        raise UnreadableRecording(f"{folder} holds no recording of a rank that can be read")
    return found, unread


def _quiet(recording: Recording) -> list[float]:
    return list(own_times(Evidence(recording).get(Steps).quiet)) if recording.has("steps") else []


def _median_us(recording: Recording) -> float:
    return statistics.median(_quiet(recording) or [0.0])


def _row(recording: Recording, traced: Rank | None) -> Rank:
    times = _quiet(recording)
    waits = [row.wait_us for row in recording.rows(BatchRow) if row.pass_name == "quiet"]
    return replace(
        traced if traced is not None and traced.device else NO_DEVICE,
        rank=recording.rank,
        file=recording.folder.name,
        steps=len(times),
        step_us=statistics.median(times or [0.0]),
        loader_us=sum(waits) / max(1, len(times)),
        peak_bytes=device_peak(recording.rows(StepRow)),
    )
