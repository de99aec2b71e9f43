"""DIST011 of the flight recorder's dumps: who does not come to a collective, and where."""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.model import Finding
from auditor.recordings.standalone import DumpsRecording, dump_files

RULES = {rule.code: rule for rule in catalogue.own_rules()}
WORLD = ("0", "default_pg")
PAIR = ("7", "tensor_parallel")


def call(
    number: int,
    line: int,
    what: str = "all_reduce",
    state: str = "completed",
    group: tuple[str, str] = WORLD,
    size: int = 4,
    backend: str = "nccl",
) -> dict[str, Any]:
    """One entry of a dump, of the line ``line`` of train.py; calls come a second apart."""
    torchs = {"name": what, "filename": "/env/site-packages/torch/distributed/c10d.py", "line": 9}
    return {
        "frames": [torchs, {"name": "step", "filename": "/job/train.py", "line": line}],
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": f"{backend}:{what}",
        "time_created_ns": (number + (100 if group == PAIR else 0)) * 10**9,
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "state": state,
        "is_p2p": False,
    }


def done(count: int, group: tuple[str, str] = WORLD) -> list[dict[str, Any]]:
    return [call(number, 10, group=group) for number in range(1, count + 1)]


def dump(entries: list[dict[str, Any]], world: int = 3) -> dict[str, Any]:
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))}}
    groups["7"] = {"name": "7", "desc": "tensor_parallel", "ranks": "[0, 1]"}
    return {"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": entries}


def written(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, each in dumps.items():
        content = json.dumps(each).encode() if as_json else pickle.dumps(each, protocol=2)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
    return folder


def judged(folder: Path) -> list[Finding]:
    recording = DumpsRecording(folder, dump_files(folder))
    judgement = engine.judge(Evidence(recording), (RULES["DIST011"],))
    assert judgement.verdicts[0].status != "failed", judgement.verdicts[0].reason
    return list(judgement.findings)


STARTED = call(4, 20, state="started")


@pytest.mark.parametrize("as_json", [False, True])
def test_the_rank_that_does_not_come_is_named_with_its_last_call(tmp_path, as_json) -> None:
    dumps = {0: dump([*done(3), STARTED]), 1: dump(done(3)), 2: dump([*done(3), STARTED])}
    (finding,) = judged(written(tmp_path, dumps, as_json=as_json))
    assert finding.site.line == 20 and finding.severity.value == "error"
    assert finding.message.startswith("ranks 0, 2 wait in all_reduce, and rank 1 calls nothing")
    assert dict(finding.facts)["rank 1"] == "called all_reduce last at /job/train.py:10"
    assert {each.site.line for each in finding.places} == {20, 10}


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (call(4, 30, "broadcast", "started"), "rank 2 calls broadcast"),
        (call(4, 30, state="started", size=8), "with 8 numbers instead of 4 numbers"),
    ],
)
def test_the_rank_that_calls_something_else_is_named(tmp_path, other, words) -> None:
    dumps = {rank: dump([*done(3), STARTED]) for rank in (0, 1)} | {2: dump([*done(3), other])}
    (finding,) = judged(written(tmp_path, dumps))
    assert words in finding.message
    assert [each.site.line for each in finding.places] == [20, 30]


def test_gathered_tensors_may_be_of_different_sizes(tmp_path) -> None:
    dumps = {
        rank: dump([*done(3), call(4, 20, "all_gather", "completed", size=rank)])
        for rank in range(3)
    }
    assert judged(written(tmp_path, dumps)) == []


@pytest.mark.parametrize("states", [("completed",) * 3, ("completed", "started", "scheduled")])
def test_what_some_have_seen_end_ends(tmp_path, states) -> None:
    dumps = {rank: dump([*done(3), call(4, 20, state=state)]) for rank, state in enumerate(states)}
    assert judged(written(tmp_path, dumps)) == []


def test_all_in_it_is_a_warning_that_says_whose_device_is_late(tmp_path) -> None:
    dumps = {
        rank: dump([*done(3), call(4, 20, state="scheduled" if rank == 2 else "started")])
        for rank in range(3)
    }
    (finding,) = judged(written(tmp_path, dumps))
    assert finding.severity.value == "warning"
    assert "all have called it: the device has not begun it on rank 2" in finding.message


def test_a_rank_without_a_dump_is_named(tmp_path) -> None:
    dumps = {rank: dump([*done(3), STARTED]) for rank in (0, 2)}
    (finding,) = judged(written(tmp_path, dumps))
    assert finding.message.endswith("there is no dump of rank 1")


def test_of_two_groups_the_one_that_waits_longest_is_named(tmp_path) -> None:
    """Rank 1 waits in the pair for rank 0, which waits for rank 2."""
    pair = call(1, 50, "all_gather", "started", PAIR)
    dumps = {0: dump([*done(3), STARTED]), 1: dump([*done(3), STARTED, pair]), 2: dump(done(3))}
    (finding,) = judged(written(tmp_path, dumps))
    assert finding.site.line == 20 and dict(finding.facts)["group"] == "default_pg"


def test_a_wait_for_a_rank_that_waits_elsewhere_follows_from_that(tmp_path) -> None:
    """Rank 2 waits, since before that by its clock, for rank 0, which waits in the pair for rank 1."""
    pair = call(1, 50, "all_gather", "started", PAIR)
    dumps = {0: dump([*done(3), pair]), 1: dump(done(3)), 2: dump([*done(3), STARTED])}
    (finding,) = judged(written(tmp_path, dumps))
    assert finding.site.line == 50 and dict(finding.facts)["group"] == "tensor_parallel"


def test_groups_without_a_description_are_told_apart_by_their_names(tmp_path) -> None:
    """torch calls each of them "undefined"."""
    first, second = ("3", "undefined"), ("4", "undefined")
    groups = {
        "3": {"name": "3", "desc": "undefined", "ranks": "[0, 1]"},
        "4": {"name": "4", "desc": "undefined", "ranks": "[2, 3]"},
    }
    dumps = {
        rank: {**dump(done(3, first if rank < 2 else second)), "pg_config": groups}
        for rank in range(4)
    }
    assert judged(written(tmp_path, dumps)) == []
    dumps[2]["entries"].append(call(4, 20, state="started", group=second))
    (finding,) = judged(written(tmp_path, dumps))
    assert finding.message.startswith("rank 2 waits in all_reduce, and rank 3 calls")


def test_a_trace_that_names_process_groups_is_no_dump(tmp_path) -> None:
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "pg_config": [{"pg_name": "0"}]}}
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_text(json.dumps({**head, "traceEvents": []}))
    assert dump_files(tmp_path) == {}


def test_a_buffer_that_lost_its_oldest_calls_is_compared_where_all_have_some(tmp_path) -> None:
    dumps = {0: dump(done(9)[6:]), 1: dump(done(9)), 2: dump(done(9)[3:])}
    assert judged(written(tmp_path, dumps)) == []


def test_a_rank_that_never_called_anything_is_absent(tmp_path) -> None:
    dumps = {0: dump([call(1, 20, state="started")]), 1: dump([call(1, 20, state="started")])}
    (finding,) = judged(written(tmp_path, {**dumps, 2: dump([])}))
    assert dict(finding.facts)["rank 2"] == "called nothing"


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/audit-was-here",)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (pickle.dumps({"pg_config": Evil()}), "only plain containers are read"),
        (
            json.dumps({"pg_config": {}, "entries": [{"state": 7}]}).encode(),
            "is no dump of torch's",
        ),
        (b'{"pg_config": ' + b"[" * 100_000, "is no dump of torch's"),
        (pickle.dumps({"pg_config": {}, "entries": 3}), "is no dump of torch's"),
    ],
    ids=["code", "another type", "deep", "no list"],
)
def test_a_file_from_a_stranger_is_one_sentence(audit, tmp_path, content, words) -> None:
    (tmp_path / "nccl_trace_rank_0").write_bytes(content)
    ended = audit("analyze", str(tmp_path), cwd=tmp_path)
    assert ended.returncode == 2 and words in ended.stderr
    assert "Traceback" not in ended.stderr and not Path("/tmp/audit-was-here").exists()


JOB = """
    import datetime, os, sys
    import torch
    import torch.distributed as dist

    rank, world, port, folder, how = int(sys.argv[1]), 4, sys.argv[2], sys.argv[3], sys.argv[4]
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=90),  # processes begin one long after the other
    )
    dist.barrier()
    world = dist.new_group(timeout=datetime.timedelta(seconds=5))

    def step():
        dist.all_reduce(torch.ones(4), group=world)

    try:
        for _ in range(2):
            step()
        if how == "leaves" and rank == 2:
            pass
        elif how == "broadcasts" and rank == 2:
            dist.broadcast(torch.ones(4), 2, group=world)
        else:
            dist.all_reduce(torch.ones(4), group=world)  # WAITS
    except RuntimeError:
        pass
    import torch._C._distributed_c10d as c10d

    with open(f"{folder}/nccl_trace_rank_{rank}", "wb") as file:
        file.write(c10d._dump_fr_trace())
    os._exit(0)
"""


@pytest.mark.full
@pytest.mark.parametrize(("how", "said"), [("leaves", "nothing more"), ("broadcasts", "broadcast")])
def test_dumps_that_torch_writes_of_a_job_of_four(tmp_path, how, said) -> None:
    pytest.importorskip("torch")
    import torch._C._distributed_c10d as c10d

    if not hasattr(c10d, "_dump_fr_trace"):
        pytest.skip("this torch has no flight recorder for gloo")
    (tmp_path / "job.py").write_text(textwrap.dedent(JOB))
    (tmp_path / "dumps").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "job.py", str(rank), str(port), str(tmp_path / "dumps"), how],
            cwd=tmp_path,
            env=env,
        )
        for rank in range(4)
    ]
    for each in ranks:
        each.wait(120)
    (finding,) = judged(tmp_path / "dumps")
    line = next(n for n, text in enumerate((tmp_path / "job.py").open(), 1) if "WAITS" in text)
    assert finding.site.line == line
    assert finding.message.startswith("ranks 0-1, 3 wait in all_reduce, and rank 2 calls")
    assert said in finding.message
