"""Folders of ranks: clocks set by collectives, the straggler, damaged and missing ranks."""

import json

import pytest

from auditor.errors import AuditProblem
from auditor.timeline import fleet, trace_files
from auditor.timeline.timeline import RankFacts
from tests.timeline.kineto import HEAD, kernel, mark, text, write

REDUCE = "ncclDevKernel_AllReduce_Sum_f32(x)"


def rank_events(rank, clock, late):
    """Ten steps; a rank that computes longer comes later to the collective."""
    events = []
    for step in range(10):
        start = clock + 1000.0 * step
        events += [
            mark(start, 990, step),
            kernel("gemm", start + 10, 300 + late, 100 * step + 1),
            kernel(REDUCE, start + 310 + late, 500 - late, 100 * step + 2, stream=9),
        ]
    return events


@pytest.fixture
def folder(tmp_path):
    for rank in range(4):
        late = 200 if rank == 2 else 10 * rank
        content = text(rank_events(rank, 5_000_000.0 + 77_000 * rank, late))
        content = content.replace('"world_size": 8', '"world_size": 4')
        content = content.replace('"rank": 3', f'"rank": {rank}')
        write(tmp_path, content, f"worker{rank}.json.gz")
    return tmp_path


def test_clocks_are_aligned_and_the_straggler_is_named(folder):
    job = fleet(trace_files(folder))
    assert [one.row.rank for one in job.ranks] == [0, 1, 2, 3]
    assert (job.world_size, job.missing, job.unread, job.warnings) == (4, (), (), ())
    found = job.late
    assert (found.place, found.last, found.shared) == (2, 10, 10)
    assert (found.waited_ns, found.clocks_ns) == (1_900_000, 0)
    assert job.least_waiting.row.rank == 2
    assert job.ranks[0].row.step_us == 990


def test_the_pool_of_processes_gives_the_same(folder, monkeypatch):
    monkeypatch.setattr("auditor.timeline.timeline.POOL_BYTES", 0)
    job = fleet(trace_files(folder))
    assert job.late.place == 2


def test_missing_and_damaged_ranks_are_said(folder):
    (folder / "worker1.json.gz").write_bytes(b"<html>")
    job = fleet(trace_files(folder))
    assert job.missing == (1,)
    assert [one.path.endswith("worker1.json.gz") for one in job.unread] == [True]
    assert job.late.shared == 10


def test_ranks_from_file_names(tmp_path):
    head = HEAD.replace('"distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},', "")
    for rank in (0, 1):
        write(tmp_path, text(rank_events(rank, 0, 0), head), f"rank-{rank}.json")
    assert [one.row.rank for one in fleet(trace_files(tmp_path)).ranks] == [0, 1]


def test_two_files_of_one_rank_are_said(folder):
    (folder / "worker9.json.gz").write_bytes((folder / "worker2.json.gz").read_bytes())
    job = fleet(trace_files(folder))
    assert len(job.ranks) == 4
    assert "two files are of rank 2" in job.warnings[0]


def test_a_size_that_no_job_has_takes_no_memory(tmp_path):
    """Found by ``make fuzz``."""
    write(tmp_path, text(rank_events(0, 0, 0)).replace('"world_size": 8', f'"world_size": {2**40}'))
    job = fleet(trace_files(tmp_path))
    assert (
        job.world_size == 2**40 and job.missing[:5] == (0, 1, 2, 4, 5) and len(job.missing) == 1000
    )


def test_ranks_that_share_no_collective_are_not_aligned(tmp_path):
    write(tmp_path, text([kernel("ncclA", 0, 5)]), "rank0.json")
    write(tmp_path, text([kernel("ncclB", 0, 5)]).replace('"rank": 3', '"rank": 4'), "rank1.json")
    assert fleet(trace_files(tmp_path)).late is None


def test_a_fleet_of_256(tmp_path):
    for rank in range(256):
        content = text(rank_events(rank, 9_000.0 * rank, 150 if rank == 77 else 0))
        write(
            tmp_path,
            content.replace('"rank": 3', f'"rank": {rank}').replace(
                '"world_size": 8', '"world_size": 256'
            ),
            f"rank{rank}.json",
        )
    job = fleet(trace_files(tmp_path))
    assert (len(job.ranks), job.missing) == (256, ())
    assert job.ranks[job.late.place].row.rank == 77
    assert all(isinstance(one, RankFacts) for one in job.ranks)


def test_folders_without_traces_end_in_one_sentence(tmp_path):
    with pytest.raises(AuditProblem, match="holds no"):
        trace_files(tmp_path)
    write(tmp_path, json.dumps({"a": 1}))
    with pytest.raises(AuditProblem, match="none of 1 files is a trace"):
        fleet(trace_files(tmp_path))
