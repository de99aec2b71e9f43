"""What is said of memory snapshots: those of our own simulated allocator, and, where they are at
hand, other people's.
"""

import gzip
import json
import pickle

import pytest
from auditor.rules.mem.peaks import PeakHeldByFewLines, RanOutOfMemory
from auditor.rules.mem.segments import (
    AllocatorSettingWouldHelp,
    BlockPinsSegment,
    ReservedMemoryNeverNeeded,
)
from auditor.rules.mem.varying_sizes import VaryingSizesReallocate
from auditor.rules.sync.waiting import AllocatorCallEveryStep
from click.testing import CliRunner

from auditor.allocator import CachingAllocator, OutOfMemory
from auditor.cli.main import main
from auditor.evidence.snapshot.what_if import OutOfMemory as Shortage
from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.model import Severity
from auditor.recordings.standalone import SnapshotRecording, is_pickle

MIB = 2**20
RULES = (
    ReservedMemoryNeverNeeded,
    BlockPinsSegment,
    PeakHeldByFewLines,
    VaryingSizesReallocate,
    AllocatorSettingWouldHelp,
    RanOutOfMemory,
    AllocatorCallEveryStep,
)


def at(line, name="step", file="/home/user/train.py"):
    return (
        {"filename": file, "line": line, "name": name},
        {"filename": "/home/user/main.py", "line": 1, "name": "main"},
    )


@pytest.fixture
def bare(tmp_path):
    """A snapshot that stands alone, with this content."""

    def write(data, name="snapshot.pickle"):
        content = pickle.dumps(data)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return Evidence(SnapshotRecording(tmp_path / name))

    return write


def holes(total=1 << 40):
    """Every other block of 60 MiB is kept, in segments of 180 MiB that were used whole before."""
    allocator = CachingAllocator(total)
    wholes = [allocator.malloc(180 * MIB, frames=at(1)) for _ in range(8)]
    for address in wholes:
        allocator.free(address)
    parts = [allocator.malloc(60 * MIB, frames=at(2)) for _ in range(24)]
    for number, address in enumerate(parts):
        if number % 3:
            allocator.free(address)
    return allocator


# -- the rules -------------------------------------------------------------------------------------


def test_holes_in_a_bare_snapshot(bare):
    allocator = holes()
    for _ in range(6):
        allocator.malloc(170 * MIB, frames=at(3))
    judged = engine.judge(bare(allocator.snapshot()), RULES)
    said = {finding.code: finding for finding in judged.findings}
    assert set(said) >= {"MEM004", "MEM005"}
    assert said["MEM005"].site.line == 2 and said["MEM005"].lost_bytes == 8 * 120 * MIB
    assert said["MEM004"].lost_bytes == 2460 * MIB - 1500 * MIB


def test_what_would_reserve_less_is_a_note_where_nothing_failed(bare):
    allocator, kept = CachingAllocator(1 << 40), []
    for _ in range(20):
        allocator.free(allocator.malloc(96 * MIB, frames=at(1)))
        kept.append(allocator.malloc(56 * MIB, frames=at(2)))
        if len(kept) > 8:
            allocator.free(kept.pop(0))
    (finding,) = engine.judge(bare(allocator.snapshot()), (AllocatorSettingWouldHelp,)).findings
    assert finding.severity is Severity.NOTE and finding.lost_bytes >= 256 * MIB
    facts = [label for label, _ in finding.facts]
    assert facts[:2] == ["with the settings recorded", "with expandable_segments:True"]


def test_an_error_among_holes_is_fragmentation_and_the_replay_says_what_fits(bare):
    allocator = holes(total=1500 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.malloc(170 * MIB, frames=at(7))
    recording = bare(allocator.snapshot())
    short = recording.get(Shortage)
    assert (short.kind, short.site.line) == ("fragmentation", 7)
    sizes = (short.requested, short.free_inside, short.largest_free, short.live)
    assert [size // MIB for size in sizes] == [170, 960, 120, 480]
    (finding,) = engine.judge(recording, (RanOutOfMemory,)).findings
    assert (finding.severity, finding.site.line, finding.seen_on) == (Severity.ERROR, 7, "snapshot")
    assert finding.remedy.config == {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    (advice,) = engine.judge(recording, (AllocatorSettingWouldHelp,)).findings
    assert advice.severity is Severity.WARNING and "do not run out of memory" in advice.message


def test_an_error_of_real_demand_is_not_called_fragmentation_and_nothing_is_advised(bare):
    allocator = CachingAllocator(1000 * MIB)
    for number in range(9):
        allocator.malloc(100 * MIB, frames=at(number))
    with pytest.raises(OutOfMemory):
        allocator.malloc(200 * MIB, frames=at(50))
    recording = bare(allocator.snapshot())
    assert recording.get(Shortage).kind == "demand"
    (finding,) = engine.judge(recording, (RanOutOfMemory, AllocatorSettingWouldHelp)).findings
    assert finding.code == "MEM015" and finding.remedy.config is None


@pytest.mark.parametrize(
    ("asked", "segment"), [(4, 20), (9, 20), (11, 12), (12, None), (200, None)]
)
def test_the_request_and_the_segment_of_torchs_message_are_told_apart(bare, asked, segment):
    """``Tried to allocate 20.00 MiB`` for a tensor of 4 MiB: both sizes are named where they
    differ.
    """
    allocator = CachingAllocator(100 * MIB)
    allocator.malloc(95 * MIB, frames=at(1))
    with pytest.raises(OutOfMemory) as raised:
        allocator.malloc(asked * MIB, frames=at(2))
    (finding,) = engine.judge(bare(allocator.snapshot()), (RanOutOfMemory,)).findings
    assert f"{asked} MiB were requested" in finding.message
    assert ("asks the device for a segment of" in finding.message) is (segment is not None)
    assert ("segment to hold it" in dict(finding.facts)) is (segment is not None)
    if segment is not None:
        assert f"segment of {segment} MiB" in finding.message
        assert f"Tried to allocate {segment}.00 MiB" in str(raised.value)


def flushed(times, frames):
    allocator = CachingAllocator(1 << 40)
    for _ in range(times):
        parts = [allocator.malloc(size * MIB, frames=at(3)) for size in (30, 50, 90)]
        for address in parts:
            allocator.free(address)
        allocator.empty_cache(frames=frames)
    data = allocator.snapshot()
    trace = [
        {**event, "frames": list(frames)} if event["action"] == "segment_free" else event
        for event in data["device_traces"][0]
    ]
    return {**data, "device_traces": [trace]}


TORCHS = {"filename": "/opt/site-packages/torch/cuda/memory.py", "line": 1, "name": "empty_cache"}


@pytest.mark.parametrize("frames", [(TORCHS, *at(9)), ()])
def test_a_cache_that_is_emptied_again_and_again(bare, frames):
    """Without frames nobody knows who emptied it."""
    (finding,) = engine.judge(bare(flushed(20, frames)), (AllocatorCallEveryStep,)).findings
    assert (finding.site.line if finding.site else None) == (9 if frames else None)
    assert "emptied the cache 10 times" in finding.message


def test_healthy_snapshots_are_silent(bare):
    allocator = CachingAllocator(1 << 40)
    weights = [allocator.malloc(40 * MIB, frames=at(n)) for n in range(10)]
    for _ in range(5):
        activations = [allocator.malloc(20 * MIB, frames=at(20 + n)) for n in range(10)]
        for address in reversed(activations):
            allocator.free(address)
    assert weights
    judged = engine.judge(bare(allocator.snapshot()), RULES)
    assert not [finding for finding in judged.findings if finding.code != "MEM006"]
    assert {verdict.status for verdict in judged.verdicts} <= {"clean", "found"}


# -- the command -----------------------------------------------------------------------------------


def analyze(path, tmp_path, monkeypatch, *more):
    monkeypatch.chdir(tmp_path)
    return CliRunner().invoke(main, ["analyze", str(path), *more])


@pytest.mark.parametrize("name", ["snapshot.pickle", "snapshot.pickle.gz", "whatever.json"])
def test_a_snapshot_is_told_by_its_content(bare, tmp_path, monkeypatch, name):
    bare(holes().snapshot(), name)
    done = analyze(tmp_path / name, tmp_path, monkeypatch, "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    run = report["run"]
    assert (run["device"], run["outcome"], run["steps"]) == ("snapshot", "completed", 0)
    assert run["peak_bytes"]["device"] == 1440 * MIB
    assert "snapshot" in {finding["seen_on"] for finding in report["findings"]}


class Hostile:
    """Runs a command when an ordinary unpickler reads it."""

    def __reduce__(self):
        return print, ("never",)


HOLES = pickle.dumps(holes().snapshot())
REFUSED = {
    "global": pickle.dumps({"segments": [Hostile()]}),
    "global in gzip": gzip.compress(pickle.dumps([Hostile()])),
    "cut": HOLES[:-200],
    "cut gzip": gzip.compress(HOLES)[:-200],
    "one byte": b"\x80",
    "no list": pickle.dumps({"segments": 3}),
    "no blocks": pickle.dumps({"segments": [{"total_size": 1, "blocks": [{}]}]}),
    "no action": pickle.dumps({"segments": [], "device_traces": [[{}]]}),
    "text": pickle.dumps("text"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_a_hostile_or_broken_pickle_is_one_sentence(why, tmp_path, monkeypatch):
    (tmp_path / "snapshot.pickle").write_bytes(REFUSED[why])
    done = analyze(tmp_path / "snapshot.pickle", tmp_path, monkeypatch)
    assert isinstance(done.exception, SystemExit) and done.exit_code == 2
    assert done.output.startswith("audit: ")
    assert "Traceback" not in done.output and "never" not in done.output


def test_a_trace_is_no_pickle(tmp_path):
    (tmp_path / "a.json").write_text('{"traceEvents": []}')
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b"{}"))
    assert not any(is_pickle(tmp_path / name) for name in ("a.json", "b.json.gz", "none"))
