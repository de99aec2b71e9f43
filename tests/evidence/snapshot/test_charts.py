"""Charts of memory: their sums are the allocator's own numbers, no peak is lost."""

import pickle

import pytest

from auditor.allocator import CachingAllocator
from auditor.evidence.snapshot.by_line import OLDER, POINTS, memory_charts
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.table import Evidence
from auditor.recordings.standalone import SnapshotRecording

MIB = 2**20


def at(line, name="step", file="/home/user/project/train.py"):
    return ({"filename": file, "line": line, "name": name},)


@pytest.fixture
def charts(tmp_path):
    """The charts of a snapshot that stands alone, and the course of its device."""

    def read(data, *, predicted=False):
        (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps(data))
        recording = Evidence(SnapshotRecording(tmp_path / "snapshot.pickle"))
        return memory_charts(recording, predicted=predicted), recording

    return read


def steps(allocator, count, spike_at=-1):
    """Each step keeps 1 MiB, and makes and frees 30 MiB; one of them 200 MiB besides."""
    for step in range(count):
        allocator.malloc(MIB, frames=at(10, "keep"))
        made = [allocator.malloc(10 * MIB, frames=at(20 + number)) for number in range(3)]
        if step == spike_at:
            made.append(allocator.malloc(200 * MIB, frames=at(30, "spike")))
        for address in made:
            allocator.free(address)
    return allocator


def by_name(chart):
    return {tone.name: column for tone, column in zip(chart.layers, chart.held)}


def test_a_long_history_keeps_its_one_spike_in_few_points(charts):
    layers, recording = charts(steps(CachingAllocator(1 << 40), 3000, spike_at=1234).snapshot())
    (chart,), (course,) = layers, recording.get(Allocations).devices
    assert len(course.reserved) > 20_000
    assert len(chart.x) * (len(chart.layers) + 1) <= POINTS
    assert max(sum(column) for column in zip(*chart.held)) == course.peak_allocated
    assert max(by_name(chart)["project/train.py:30 spike"]) == 200 * MIB


def test_what_was_there_before_is_told_apart(charts):
    allocator = CachingAllocator(1 << 40, history_limit=4)
    old = [allocator.malloc(50 * MIB, frames=at(1)) for _ in range(4)]
    allocator.free(old[0])
    allocator.malloc(10 * MIB, frames=at(2))
    layers, recording = charts(allocator.snapshot())
    (course,) = recording.get(Allocations).devices
    assert [sum(column) for column in zip(*layers[0].held)] == list(course.allocated)
    assert by_name(layers[0])[OLDER] == (50 * MIB, 0, 0, 0)


def test_without_a_history_there_is_no_chart(charts):
    data = {**steps(CachingAllocator(1 << 40), 5).snapshot(), "device_traces": []}
    assert charts(data)[0] == ()
    assert charts({"segments": [], "device_traces": []})[0] == ()
