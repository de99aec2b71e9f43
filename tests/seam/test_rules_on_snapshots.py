"""Recorded memory snapshots: our bytes and peaks beside the truth, and what the rules say."""

from contextlib import suppress

import pytest

from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.state_at import state_after
from auditor.evidence.snapshot.what_if import AGREES, card_of, replays_of
from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.model import Severity
from auditor.recordings.standalone import SnapshotRecording
from auditor.rule import NotLooked
from tests.recorded_traces import OURS, SNAPSHOTS

MIB = 2**20

LOUD = {
    "snap_empty_cache": {"SYNC009"},
    "snap_growing": {"MEM004", "MEM009"},
    "snap_out_of_memory": {"MEM015"},
    "snap_octree_nca_vram": {"MEM004", "MEM005", "MEM009"},
    "snap_seg_churn_llama_2024": {"SYNC009"},
}
"""What is said louder than a note; of all other snapshots nothing is."""

NOT_REPLAYED = set(
    """
    snap_cs336_nohistory_72GB snap_empty snap_expandable_tiny snap_list_form snap_no_history
    snap_oom_fullcard_2023 snap_seg_churn_llama_2024
""".split()
)
"""Without a history, or with one that does not say why memory went back to the device."""


def histories(key):
    """What the truth says of each device that has a history."""
    return {
        device: told
        for device, told in SNAPSHOTS[key].truth["snapshot"]["trace"].items()
        if "free_completed" in told["actions"]
    }


@pytest.mark.parametrize("key", [key for key in SNAPSHOTS if histories(key)])
def test_peaks_are_the_ground_truth(key):
    truth, recording = histories(key), Evidence(SnapshotRecording(SNAPSHOTS[key].path))
    courses = recording.get(Allocations).devices
    assert {str(course.device) for course in courses} == set(truth)
    for course in courses:
        state = state_after(snapshot_of(recording), course.device, course.peak)
        assert sum(block.size for block in state.blocks) == course.allocated[course.peak]
        least, most = bounds(key, truth[str(course.device)], course.start_allocated)
        assert least <= course.peak_allocated <= most


def bounds(key, told, start):
    """Of the peak in bytes: torch also counts what a block has beyond its request."""
    if stats := SNAPSHOTS[key].truth.get("torch_stats"):
        return 0.997 * stats["allocated_bytes.all.peak"], stats["allocated_bytes.all.peak"]
    requested = told["peak_delta_bytes"] + start
    return 0.99999 * requested, 1.01 * requested + MIB


@pytest.mark.parametrize(
    "key", [key for key, one in SNAPSHOTS.items() if "torch_stats" in one.truth and histories(key)]
)
def test_reserved_memory_retries_and_errors_are_what_torch_says(key):
    stats = SNAPSHOTS[key].truth["torch_stats"]
    (course,) = Allocations.build(Evidence(SnapshotRecording(SNAPSHOTS[key].path))).devices
    assert course.peak_reserved == stats["reserved_bytes.all.peak"]
    assert (course.retries, len(course.ooms)) == (stats["num_alloc_retries"], stats["num_ooms"])


@pytest.mark.parametrize("key", SNAPSHOTS)
def test_a_replay_reserves_what_was_recorded(key):
    ratios = []
    with suppress(NotLooked):
        recording = Evidence(SnapshotRecording(SNAPSHOTS[key].path))
        courses = [course for course in recording.get(Allocations).devices if not course.untrusted]
        for course in courses:
            predicted = replays_of(recording, course).under(
                "", card_of(course, snapshot_of(recording))
            )
            assert predicted.retries == course.retries
            ratios.append(predicted.peak_reserved / course.peak_reserved)
    assert len(ratios) == (key.partition("/")[0] not in NOT_REPLAYED)
    assert all(abs(ratio - 1) <= AGREES for ratio in ratios)


def found(key):
    judged = engine.judge(Evidence(SnapshotRecording(SNAPSHOTS[key].path)), catalogue.rules())
    assert not [verdict for verdict in judged.verdicts if verdict.status == "failed"]
    return {finding.code: finding for finding in judged.findings}


@pytest.mark.parametrize("key", SNAPSHOTS)
def test_what_a_snapshot_shows_is_said_and_nothing_else(key):
    loud = {code for code, finding in found(key).items() if finding.severity is not Severity.NOTE}
    assert loud == LOUD.get(key.partition("/")[0], set())


def line_of(text):
    """The only line of the recorded program that is this text."""
    lines = (OURS / "programs" / "snapshots.py").read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if line.strip() == text]
    return number


def test_the_line_that_empties_the_cache_is_named():
    finding = found("snap_empty_cache/snapshot.pickle.gz")["SYNC009"]
    assert (finding.site.file.rpartition("/")[2], finding.site.line) == (
        "snapshots.py",
        line_of("torch.cuda.empty_cache()"),
    )
    assert "emptied the cache 6 times in the second half of the history" in finding.message


def test_the_line_that_holds_what_filled_the_card_is_named():
    finding = found("snap_out_of_memory/snapshot.pickle.gz")["MEM015"]
    (told,) = SNAPSHOTS["snap_out_of_memory/snapshot.pickle.gz"].truth["snapshot"]["trace"]["0"][
        "oom"
    ]
    assert finding.site.line == line_of("return self.head(self.blocks(self.words(tokens)))")
    assert f"snapshots.py:{finding.site.line} forward" == told["site"]
    assert told["size"] == 500 * MIB and "500 MiB were requested" in finding.message
    assert (
        told["verdict"] == "exhaustion"
        and "this is real demand, not fragmentation" in finding.message
    )
