"""``--nproc``: several processes of one target, from the command line to the report."""

import json

import pytest

TRAINER = """
import os, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
assert int(os.environ["LOCAL_RANK"]) == rank and dist.get_world_size() == int(os.environ["WORLD_SIZE"])
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, taken = [], [0]

def step():
    taken[0] += 1
    loss = model(torch.full((4, 8), float(rank))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

def failing():
    if rank == 1 and taken[0] == 5:
        raise ValueError("no more data on rank 1")
    step()

def short():
    for _ in range(20):
        yield step()

def several():
    data = TensorDataset(torch.randn(64, 8))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    torch.manual_seed(5)
    alike = DataLoader(data, batch_size=8, shuffle=True)  # DIST008
    own = iter(DataLoader(torch.randn(400, 8) + rank, batch_size=4))
    wide = DistributedDataParallel(torch.nn.Linear(8, 1), find_unused_parameters=True)
    descent = torch.optim.SGD(wide.parameters(), lr=0.1)
    while True:  # DIST007
        for (x,), (y,) in zip(loader, alike):
            next(own)
            descent.zero_grad()
            for half in x.chunk(2):
                wide(half).square().mean().backward()  # DIST005
            descent.step()
            dist.barrier()  # DIST009
            yield
"""

MARKED = {
    code: number
    for number, line in enumerate(TRAINER.splitlines(), 1)
    for code in [line.partition("  # DIST")[2]]
    if code
}

ALONE = """
import os, time
import torch

model = torch.nn.Linear(8, 1)

def step():
    time.sleep(0.02 if os.environ["RANK"] == "1" else 0.001)
    model(torch.ones(4, 8)).mean().backward()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ddp.py").write_text(TRAINER)
    (tmp_path / "alone.py").write_text(ALONE)
    return tmp_path


def run(audit, folder, target, *more):
    words = "--nproc 2 --steps 8 --warmup 1 --out out"
    done = audit("run", target, *words.split(), *more, cwd=folder)
    report = folder / "out" / "report.json"
    return done, json.loads(report.read_text()) if report.is_file() else None


def test_two_ranks_are_one_report_and_analyze_finds_the_same(audit, folder):
    done, report = run(audit, folder, "ddp.py:several")
    assert done.returncode == 0, done.stderr
    assert report["run"]["world_size"] == 2
    assert [(row["rank"], row["steps"]) for row in report["ranks"]] == [(0, 8), (1, 8)]
    assert {
        f["code"].removeprefix("DIST"): f["site"]["line"]
        for f in report["findings"]
        if f["severity"] != "note" or f["code"].startswith("DIST")
    } == MARKED
    assert {each.name for each in (folder / "out" / "recording").iterdir()} == {"rank0", "rank1"}
    assert audit("analyze", "out", "--out", "again", cwd=folder).returncode == 0
    again = json.loads((folder / "again" / "report.json").read_text())
    assert [f["key"] for f in again["findings"]] == [f["key"] for f in report["findings"]]
    assert again["ranks"] == report["ranks"]


def test_the_rank_that_failed_is_judged_and_the_one_that_waits_for_it_is_ended(audit, folder):
    done, report = run(audit, folder, "ddp.py:failing", "--device", "cpu")
    assert done.returncode == 3, done.stderr
    assert (report["run"]["outcome"], report["run"]["error"]["message"]) == (
        "raised",
        "no more data on rank 1",
    )
    assert "the error that is shown is that of rank 1" in report["warnings"]
    assert any(text.startswith("rank 0 did not end well either: ") for text in report["warnings"])


def test_the_slowest_rank_is_judged_where_nothing_ties_them(audit, folder):
    done, report = run(audit, folder, "alone.py:step", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert any("asked of rank 1, which has the longest steps" in text for text in report["method"])
    assert report["ranks"][1]["step_us"] > 15_000 > report["ranks"][0]["step_us"]


def test_what_cannot_be_run_is_one_sentence(audit, folder):
    done, report = run(audit, folder, "ddp.py:stepp")
    assert (done.returncode, report) == (2, None) and "did you mean" in done.stderr
    assert not (folder / "out").exists()
    done, _ = run(audit, folder, "ddp.py:step", "--device", "rehearse")
    assert done.returncode == 2 and "one process" in done.stderr
