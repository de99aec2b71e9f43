"""The simulated card of a rehearsal: settings that torch would refuse, frees in their turn."""

from pathlib import Path

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.rehearsal import RehearsedMemory
from auditor.recordings.folder import RecordingWriter


def held(folder: Path) -> RehearsedMemory:
    return RehearsedMemory(1 << 30, Frames(RecordingWriter(folder)), folder)


def test_allocator_settings_are_read_and_bad_ones_passed_over(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTORCH_ALLOC_CONF", raising=False)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert held(tmp_path / "a").allocator.settings.expandable_segments
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:soon")
    assert not held(tmp_path / "b").allocator.settings.expandable_segments


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
