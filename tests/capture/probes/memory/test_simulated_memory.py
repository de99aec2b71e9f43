"""The simulated card of a rehearsal: settings that torch would refuse, frees in their turn."""

from pathlib import Path

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.rehearsal import RehearsedMemory
from auditor.recordings.folder import RecordingWriter


def held(folder: Path) -> RehearsedMemory:
    return RehearsedMemory(1 << 30, Frames(RecordingWriter(folder)), folder)


def test_a_free_is_done_before_the_next_question(tmp_path):
    memory = held(tmp_path)
    memory.allocated(7, 4 << 20)
    assert memory.counters()["allocated"] == 4 << 20
    memory.freed(7)
    assert (memory.counters()["allocated"], memory.counters()["peak_allocated"]) == (0, 4 << 20)


def test_workspaces_are_kept_and_those_of_one_call_are_not(tmp_path):
    memory = held(tmp_path)
    memory.workspace(32 << 20, kept=True)
    memory.workspace(1 << 20, kept=False)
    counters = memory.counters()
    assert (counters["allocated"], counters["peak_allocated"]) == (32 << 20, 33 << 20)
    assert len(memory.workspaces) == 1
