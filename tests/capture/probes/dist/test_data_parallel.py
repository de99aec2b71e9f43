"""The probes of DistributedDataParallel and of its samplers' epochs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from auditor.rules.dist.probes.collectives import AT_ONCE, FUNCTIONS, CollectivesProbe
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.probes.dist.batch_digests import BatchDigestsProbe
from auditor.capture.probes.dist.data_parallel import DataParallelProbe
from auditor.capture.probes.dist.sampler_epochs import SamplerEpochsProbe
from tests.capture.drive import Drive, line_of, load
from tests.echo_group import ranks

SOURCE = """
import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
    def forward(self, x, both):
        return self.a(x) + self.b(x) if both else self.a(x)

model = DistributedDataParallel(Two(), find_unused_parameters=True)  # made
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.ones(2, 4)

def twice():
    optimizer.zero_grad()
    with model.no_sync():
        model(x, True).sum().backward()
    model(x, False).sum().backward()
    model(x, True).sum().backward()  # last
    optimizer.step()

def last_apart():
    optimizer.zero_grad()
    model(x, True).sum().backward()
    with model.no_sync():  # enters
        model(x, True).sum().backward()
        model(x, True).sum().backward()  # apart
    optimizer.step()

def prepared_before():
    optimizer.zero_grad()
    loss = model(x, True).sum()
    with model.no_sync():
        model(x, True)
        loss.backward()
    optimizer.step()

def all_apart():
    with model.no_sync():
        model(x, True).sum().backward()
    optimizer.step()

def cleared():
    model(x, True).sum().backward()
    model.zero_grad()
    model(x, True).sum().backward()
    optimizer.step()
    optimizer.zero_grad()

def not_stepped():
    model(x, True).sum().backward()

data = TensorDataset(torch.ones(8, 4))
sampler = DistributedSampler(data, num_replicas=2, rank=1)  # sampler
loader = DataLoader(data, batch_size=2, sampler=sampler)  # loader
grouped = DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(sampler, 2, False))
plain = DataLoader(data, batch_size=2, shuffle=True)

def epoch():
    for _ in loader:  # begins
        pass
    for _ in plain:
        pass
    sampler.set_epoch(sampler.epoch + 1)

def by_groups():
    next(iter(grouped))
"""


def test_what_was_averaged_for_each_step_of_the_optimizer(tmp_path: Path) -> None:
    ranks()
    before = [
        (owner, name, vars(owner)[name])
        for owner, name in (
            (DistributedDataParallel, "__init__"),
            (DistributedDataParallel, "forward"),
            (torch.optim.Optimizer, "zero_grad"),
            (torch.nn.Module, "zero_grad"),
        )
    ]
    with Drive(tmp_path, DataParallelProbe) as drive:
        user = load(tmp_path, SOURCE)
        for step in (user.twice, user.cleared, user.not_stepped):
            drive.run("loud", step, steps=1)
        (module, *again), rows = drive.rows("data_parallel"), drive.rows("gradient_syncs")
        assert (module["at_line"], module["what"]) == (line_of(user, "made"), "Two")
        assert (module["ranks"], module["bytes"]) == (2, 80)
        assert len(again) == 1  # another pass
        assert [row["n"] for row in rows] == [2, 1]
        assert rows[0]["at_line"] == line_of(user, "last")
    assert all(vars(owner)[name] is value for owner, name, value in before)


def test_steps_on_gradients_of_one_rank(tmp_path: Path) -> None:
    ranks()
    before = vars(DistributedDataParallel)["no_sync"]
    with Drive(tmp_path, DataParallelProbe) as drive:
        user = load(tmp_path, SOURCE)
        for step in (user.last_apart, user.prepared_before, user.all_apart):
            drive.run("loud", step, steps=1)
        rows = drive.rows("gradient_syncs")
    assert [(row["n"], row.get("local", 0)) for row in rows] == [(1, 2), (1, 0), (0, 1)]
    assert rows[0]["local_at_line"] == line_of(user, "apart")
    assert rows[0]["entered_at_line"] == line_of(user, "enters")
    assert vars(DistributedDataParallel)["no_sync"] is before


def test_which_epochs_begin(tmp_path: Path) -> None:
    before = vars(DataLoader)["__iter__"], vars(DistributedSampler)["__init__"]
    with Drive(tmp_path, SamplerEpochsProbe) as drive:
        user = load(tmp_path, SOURCE.replace("model = Dist", "#").replace("optimizer = t", "#"))
        drive.run("quiet", user.epoch, steps=2)
        drive.run("loud", user.by_groups, steps=1)
        user.sampler.shuffle = False
        drive.run("loud", user.epoch, steps=1)
        rows = drive.rows("sampler_epochs")
    assert [(row.get("epoch", 0), row["replicas"]) for row in rows] == [(0, 2), (1, 2), (2, 2)]
    assert rows[0]["at_line"] == line_of(user, "begins")
    assert rows[0]["stack"] == [rows[0]["at"]]
    assert [row["loader_at_line"] for row in rows[:2]] == [line_of(user, "loader")] * 2
    assert {row["made_at_line"] for row in rows} == {line_of(user, "sampler")}
    assert (vars(DataLoader)["__iter__"], vars(DistributedSampler)["__init__"]) == before


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


def test_equal_batches_have_equal_digests(tmp_path: Path) -> None:
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


CALLS = """
import torch
import torch.distributed as dist
from torch.distributed import barrier

def step():
    for _ in range(3):
        dist.all_reduce(torch.ones(4))  # reduced
    dist.broadcast(tensor=torch.ones(2), src=0)  # sent
    barrier()  # barrier
"""


def test_collectives_are_counted_by_line(tmp_path: Path) -> None:
    ranks()
    owners = dist, dist.distributed_c10d
    before = [getattr(owner, name) for owner in owners for name in FUNCTIONS]
    with Drive(tmp_path, CollectivesProbe) as drive:
        user = load(tmp_path, CALLS)
        drive.run("quiet", user.step, steps=1)
        drive.run("loud", user.step, steps=2)
        rows = drive.rows("collectives")
    said = [(row["at_line"], row["what"], row["n"], row.get("bytes", 0)) for row in rows[:3]]
    assert said == [
        (line_of(user, "reduced"), "all_reduce", 3, 48),
        (line_of(user, "sent"), "broadcast", 1, 8),
        (line_of(user, "barrier"), "barrier", 1, 0),
    ]
    assert [row["step"] for row in rows] == [0, 0, 0, 1, 1, 1]
    assert all(row["us"] > 0 and row["ranks"] == 2 for row in rows)
    assert [getattr(owner, name) for owner in owners for name in FUNCTIONS] == before


def test_calls_are_on_disk_before_they_are_made(tmp_path: Path) -> None:
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


def test_groups_of_a_part_of_the_ranks_are_not_logged(tmp_path: Path) -> None:
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
