"""The recordings of a job's ranks, opened as one."""

import json

import pytest

from auditor.recordings.folder import SCHEMA
from auditor.runs.rank_recordings import RankedRecording


def ranked(folder, **manifests):
    """A folder of ``rank<k>`` with these manifests."""
    for name, manifest in manifests.items():
        (folder / name).mkdir()
        number = int(name.removeprefix("rank"))
        whole = {"schema": SCHEMA, "world_size": len(manifests), "rank": number, **manifest}
        (folder / name / "manifest.json").write_text(json.dumps(whole))
    return RankedRecording(folder)


def test_a_rank_that_nobody_lived_to_speak_for_was_killed(tmp_path):
    opened = ranked(tmp_path, rank0={"outcome": "completed"}, rank1={})
    assert opened.outcome == "killed"
    assert opened.manifest["judged"] == "rules were asked of rank 1, which failed first"


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_failed_is_judged(tmp_path, rank):
    outcomes = {f"rank{number}": {"outcome": "completed"} for number in range(2)}
    outcomes[f"rank{rank}"] = {"outcome": "raised", "error": {"type": "ValueError"}}
    assert ranked(tmp_path, **outcomes).manifest["rank"] == rank


IN = 'File "/torch/distributed/distributed_c10d.py", line 3 in all_reduce\n  File "t.py", line 9 in f'


def hung(stack):
    trace = f"Current thread 0x1 (most recent call first):\n  {stack}"
    return {"outcome": "timeout", "error": {"type": "Timeout", "time_us": 1, "traceback": trace}}


def test_of_ranks_that_hang_the_one_outside_the_collective_is_judged(tmp_path):
    late = 'File "t.py", line 8 in f'
    opened = ranked(tmp_path, rank0=hung(IN), rank1=hung(late), rank2=hung(IN))
    assert opened.rank == 1 and "while others waited" in opened.manifest["judged"]
    assert opened.manifest["error"]["traceback"] == f"rank 1:\n  {late}\nranks 0, 2:\n  {IN}"
    assert opened.manifest["warnings"] == ["3 ranks were still running when the time was over"]
