"""The probes of DistributedDataParallel and of its samplers' epochs."""

import pytest
from auditor.rules.dist.probes.collectives import AT_ONCE, CollectivesProbe

from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.probes.dist.batch_digests import BatchDigestsProbe
from tests.capture.drive import Drive, line_of, load
from tests.echo_group import ranks

LOADERS = """
import torch
from torch.utils.data import DataLoader, TensorDataset

numbers = torch.arange(32.0).reshape(16, 2)
loader = DataLoader(TensorDataset(numbers), batch_size=2)  # loader
again = DataLoader(TensorDataset(numbers.clone()), batch_size=2)
names = DataLoader(["a", "b", "c", "d"], batch_size=2)
batches = zip(loader, again, names)

def step():
    next(batches)

def validation():
    with torch.no_grad():
        next(iter(loader))
"""


def test_equal_batches_have_equal_digests(tmp_path):
    ranks()
    iterator = LoaderIterator
    before = [vars(iterator)[name] for name in ("__init__", "__next__")]
    with Drive(tmp_path, BatchDigestsProbe) as drive:
        user = load(tmp_path, LOADERS)
        drive.run("loud", user.step, steps=2)
        drive.run("loud", user.validation, steps=1)
        rows = drive.rows("batch_digests")
    assert [row["step"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert rows[0]["loader_at_line"] == line_of(user, "loader")
    assert {row["ranks"] for row in rows} == {2}
    first, second = (
        [row.get("digest", "") for row in rows[:3]],
        [row.get("digest", "") for row in rows[3:]],
    )
    assert first[0] == first[1] != second[0] == second[1]
    assert (first[2], second[2]) == ("", "")
    assert [vars(iterator)[name] for name in ("__init__", "__next__")] == before


def test_calls_are_on_disk_before_they_are_made(tmp_path):
    ranks()
    source = """
import torch
import torch.distributed as dist

class Hangs(Exception): pass

def step(times=20):
    for _ in range(times):
        dist.all_reduce(torch.ones(2, 3))  # reduced
    raise Hangs
"""
    with Drive(tmp_path, CollectivesProbe) as drive:
        user = load(tmp_path, source)
        with drive.running("quiet"), pytest.raises(user.Hangs):
            drive.step(user.step)
        (file,) = drive.folder.glob("collective_calls.jsonl")
        assert len(file.read_text().splitlines()) == AT_ONCE < 20
        (row, *_) = drive.rows("collective_calls")
    assert (row["at_line"], row["what"]) == (line_of(user, "reduced"), "all_reduce")
    assert (row["numbers"], row.get("total", 0)) == (6, 0)


def test_groups_of_a_part_of_the_ranks_are_not_logged(tmp_path):
    ranks()
    source = """
import torch
import torch.distributed as dist

some = dist.new_group([0, 1])

def step():
    dist.all_reduce(torch.ones(2), group=some)
    dist.all_reduce(torch.ones(2), group=dist.group.WORLD)
"""
    with Drive(tmp_path, CollectivesProbe) as drive:
        user = load(tmp_path, source)
        drive.context.global_step = 7  # the session counts it up in each step
        with drive.running("quiet"):
            drive.context.step = 2
            drive.step(user.step)
        (row,) = drive.rows("collective_calls")
    assert row["total"] == 7
