"""``audit run --world``: ranks of a job that is not there, on the null device, beside real ranks of gloo:
equal collectives, by count, bytes and line; and a deadlock before it hangs.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from auditor import null_device
from auditor.recordings.folder import Recording
from auditor.recordings.schema.dist import CommunicationRow
from tests.cuda.conftest import ROOT

TRAINER = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

DEV = os.environ.get("TRAINER_DEVICE", "cuda")
dist.init_process_group("nccl" if DEV == "cuda" else "gloo")
if DEV == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
size = dist.get_world_size()
mesh = init_device_mesh(DEV, (size,), mesh_dim_names=("all",))


def block():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEV)


def sharded(over, **more):
    model = nn.Sequential(block(), block())
    for each in model:
        fully_shard(each, mesh=over, **more)
    return fully_shard(model, mesh=over, **more)


ddp = DistributedDataParallel(block())
full, kept = sharded(mesh), sharded(mesh, reshard_after_forward=False)
hybrid = sharded(init_device_mesh(DEV, (1, size), mesh_dim_names=("copies", "shards")))
tp = parallelize_module(block(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
models = (ddp, full, kept, hybrid, tp)
optimizer = torch.optim.AdamW([p for m in models for p in m.parameters()], foreach=False)


def step():
    optimizer.zero_grad()
    x = torch.randn(8, 64, device=DEV)
    ddp(x).sum().backward()
    full(x).sum().backward()
    kept(x).sum().backward()
    hybrid(x).sum().backward()
    tp(x).sum().backward()
    total = torch.ones(4, device=DEV)
    work = dist.all_reduce(total, async_op=True)
    x = x + 1
    work.wait()
    optimizer.step()
"""

PARTS = """\
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
count = torch.zeros(1, device="cuda")
for i in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    if MORE:
        dist.all_reduce(count)  # only here
    dist.barrier()  # meanwhile
seen = [None] * dist.get_world_size()
dist.all_gather_object(seen, {"rank": dist.get_rank()})
"""

WATCHED = 3
"""Steps that are watched of real ranks; of rehearsed ones it is all that are diagnosed."""

Seen = dict[str, "Counter[tuple[object, ...]]"]


def audited(folder: Path, *words: str, **env: str) -> Path:
    """The folder of an audit that ended well."""
    out = folder / f"out-{words[1].strip('-')}"
    done = subprocess.run(
        [sys.executable, "-m", "auditor", "run", *words, "--out", str(out)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env={**null_device.without(os.environ), "PYTHONPATH": str(ROOT), **env},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def exchanged(out: Path, first: int = 0) -> Seen:
    """Each collective of each rank from this step on: step, line, kind, group, ranks, bytes."""
    found: Seen = {}
    for folder in sorted((out / "recording").glob("rank*")):
        recording = Recording(folder)
        assert recording.outcome == "completed", recording.manifest["error"]
        found[folder.name] = Counter(
            (
                row.step - first,
                recording.site(row.at).line,
                row.what,
                row.group,
                row.ranks,
                row.dtype,
                row.bytes_in,
                row.bytes_out,
            )
            for row in recording.rows(CommunicationRow)
            if first <= row.step < first + WATCHED
        )
    return found


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """The trainer, rehearsed as both ranks of two."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "trainer.py").write_text(TRAINER)
    return audited(folder, "trainer:step", "--world", "2", "--select", "DIST")


def test_a_rehearsed_world_exchanges_what_real_ranks_do(rehearsed):
    words = ("--nproc", "2", "--steps", "3", "--warmup", "1", "--device", "cpu", "--select", "DIST")
    real = audited(rehearsed.parent, "trainer:step", *words, TRAINER_DEVICE="cpu")
    # wrappers set themselves up in the first two steps, which real ranks take in the timing pass
    played, seen = exchanged(rehearsed, first=2), exchanged(real)
    assert set(played) == {"rank0", "rank1"}
    assert played == seen
    kinds = Counter(what for _, _, what, *_ in played["rank0"].elements())
    assert set(kinds) == {"all_reduce", "all_gather", "reduce_scatter"}
    assert min(kinds.values()) >= 12


def test_the_report_has_memory_by_purpose_bytes_and_no_time(rehearsed):
    report = json.loads((rehearsed / "report.json").read_text())
    told = report["communication"]
    assert (told["world_size"], told["played"]) == (2, True)
    assert [each["rank"] for each in told["ranks"]] == [0, 1]
    for each in told["ranks"]:
        held = each["parameter_bytes"], each["gradient_bytes"]
        assert 0 < held[1] <= held[0] < each["peak_bytes"]
        assert each["optimizer_bytes"] == 2 * held[0]  # AdamW's two averages
    lines = TRAINER.splitlines()
    by_line = {lines[each["site"]["line"] - 1].strip(): each for each in told["exchanges"]}
    waited = by_line["work = dist.all_reduce(total, async_op=True)"]
    assert (waited["between"], lines[waited["waited"]["line"] - 1].strip()) == (1, "work.wait()")
    assert report["run"]["step_us"] is None and report["ranks"] == []
    assert {each["lost_us_per_step"] for each in report["findings"]} <= {None}
    (order,) = (each for each in report["verdicts"] if each["code"] == "DIST011")
    assert order["status"] == "clean"


def test_a_rank_that_calls_one_collective_more_is_a_deadlock_with_both_lines(tmp_path):
    (tmp_path / "train.py").write_text(PARTS.replace("MORE", "dist.get_rank() == 0 and i == 5"))
    out = audited(tmp_path, "train.py", "--world", "64", "--select", "DIST011")
    assert sorted(each.name for each in (out / "recording").iterdir()) == ["rank0", "rank63"]
    report = json.loads((out / "report.json").read_text())
    (finding,) = report["findings"]
    assert finding["code"] == "DIST011"
    lines = (tmp_path / "train.py").read_text().splitlines()
    assert lines[finding["site"]["line"] - 1].strip() == "dist.all_reduce(count)  # only here"
    other = next(number for number, line in enumerate(lines, 1) if "# meanwhile" in line)
    assert (
        f"rank 0 calls all_reduce here, but rank 63 calls barrier at train.py:{other}"
        in (finding["message"])
    )
