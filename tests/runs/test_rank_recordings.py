"""The recordings of a job's ranks, opened as one."""

from __future__ import annotations

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


def test_without_failures_rank_0_is_judged(tmp_path):
    opened = ranked(tmp_path, rank0={"outcome": "completed"}, rank1={"outcome": "completed"})
    assert opened.manifest["judged"] == (
        "rules were asked of rank 0, no rank is slower than it by more than 5 %"
    )
