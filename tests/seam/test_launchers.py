"""Ranks that torchrun started, from the command line to the report."""

import json

import pytest

SCRIPT = """
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(int(sys.argv[1])):
    if "--fail" in sys.argv and rank == 1 and step == 12:
        raise ValueError("no more data on rank 1")
    loss = model(torch.full((4, 8), float(rank))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
dist.destroy_process_group()
"""
TORCHRUN = ("torchrun", "--nproc-per-node", "2")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "ddp.py").write_text(SCRIPT)
    return tmp_path


def report_of(folder):
    return json.loads((folder / "report.json").read_text())


def test_torchrun_of_a_script_that_ends_early_is_one_report(audit, folder):
    """Its 40 steps are too few, so all ranks run once more with passes that fit."""
    done = audit("run", "--steps", "30", "--", *TORCHRUN, "ddp.py", "40", cwd=folder)
    assert done.returncode == 0, done.stderr
    out = (folder / "audits" / "last").resolve()
    left = {each.name for each in (folder / "audits").iterdir()}
    assert left == {out.name, "last"}, "nothing of how the ranks met"
    report = report_of(out)
    assert (report["run"]["world_size"], report["run"]["outcome"]) == (2, "completed")
    assert [row["rank"] for row in report["ranks"]] == [0, 1]
    assert len({row["steps"] for row in report["ranks"]}) == 1
    assert any("ends after 40 steps" in text for text in report["warnings"])
    assert {each.name for each in (out / "recording").iterdir()} == {"rank0", "rank1"}


def test_the_rank_that_failed_under_torchrun_is_named(audit, folder):
    words = ("--steps", "30", "--out", "out", "--device", "cpu")
    done = audit("run", *words, "--", *TORCHRUN, "ddp.py", "60", "--fail", cwd=folder)
    assert done.returncode == 3, done.stderr
    report = report_of(folder / "out")
    assert report["run"]["error"]["message"] == "no more data on rank 1"
    assert "the error that is shown is that of rank 1" in report["warnings"]
    assert sorted(each.name for each in (folder / "out").iterdir() if each.name[0] == ".") == []


def test_a_script_that_asks_for_its_rank_is_told_how_to_be_started(audit, folder):
    done = audit("run", "ddp.py", "--", "40", cwd=folder)
    assert done.returncode == 3
    words = " ".join(done.stdout.split())
    assert "the target asks for RANK, which a launcher sets: audit run ddp.py --nproc 2" in words
    assert "audit run -- torchrun --nproc-per-node 2 ddp.py" in words


def test_other_launchers_and_wrong_options_are_one_sentence(audit, folder):
    done = audit("run", "--", "accelerate", "launch", "ddp.py", cwd=folder)
    assert done.returncode == 2
    assert "write accelerate launch --module auditor run train.py -- ARGS" in done.stderr
    done = audit("run", "--", "torchrun", "--foo", "ddp.py", cwd=folder)
    assert (done.returncode, done.stderr.splitlines()[0]) == (
        2,
        "audit: torchrun: unrecognized arguments: --foo",
    )
    assert not (folder / "audits").exists()


def test_ranks_of_a_launcher_start_none_of_their_own(audit, folder):
    done = audit("run", "ddp.py", "--nproc", "2", cwd=folder, RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2
    assert "leave out --nproc" in done.stderr
    done = audit("run", "ddp.py", "--device", "rehearse", cwd=folder, RANK="0", WORLD_SIZE="2")
    assert done.returncode == 2
    assert "start one process instead of 2" in done.stderr
