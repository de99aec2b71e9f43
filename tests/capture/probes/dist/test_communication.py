"""Every collective of a step is seen, whoever issues it; nothing of the step is changed."""

import pytest
import torch
import torch.distributed as dist

from auditor.capture.probes.dist import communication
from auditor.capture.probes.dist.batch_digests import RankMemoryProbe, on_device
from auditor.capture.probes.dist.communication import WATCHED, CommunicationProbe
from auditor.capture.target.played_world import PlayedWorld
from auditor.model.devices import NULL
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

x = torch.ones(4, 8)

def explicit():
    total = torch.ones(3)
    dist.all_reduce(total)  # sync
    work = dist.all_reduce(total, async_op=True)  # async
    y = x @ x.T
    y = y + 1
    work.wait()  # wait
    at_once = dist.all_reduce(total, async_op=True)  # hasty
    at_once.wait()  # then
    parts = [torch.empty(3) for _ in range(4)]
    dist.all_gather(parts, total)  # gather
    dist.barrier()  # barrier

def data_parallel():
    global ddp
    ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
    def step():
        ddp(x).sum().backward()  # ddp backward
    return step

def sharded():
    model = torch.nn.Linear(8, 8)
    fully_shard(model, mesh=init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",)))
    def step():
        y = model(x)  # forward
        y.sum().backward()  # backward
    return step

def tensors():
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    local = torch.ones(2, 8)
    def step():
        whole = DTensor.from_local(local, mesh, [Shard(0)]).redistribute(mesh, [Replicate()])  # tp
        return whole.to_local() + 1  # used
    return step
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    """The program, as rank 1 of 4."""
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    if dist.is_initialized():
        dist.destroy_process_group()
    world = PlayedWorld()
    world.install()
    dist.init_process_group("gloo")
    yield load(tmp_path, SOURCE)
    dist.destroy_process_group()
    world.uninstall()


def rows_of(tmp_path, step, steps=1, pass_name="numbers"):
    with Drive(tmp_path, CommunicationProbe) as drive:
        drive.run(pass_name, step, steps=steps)
        assert drive.warnings == []
        return drive.rows("communication")


def told(rows, *keys):
    return [tuple(row.get(key) for key in ("at_line", "what", *keys)) for row in rows]


def test_bytes_waits_and_work_between(tmp_path, user):
    rows = rows_of(tmp_path, user.explicit)
    lines = {mark: line_of(user, mark) for mark in ("sync", "async", "gather", "barrier")}
    assert told(rows, "bytes_in", "bytes_out", "dtype", "ranks", "between") == [
        (lines["sync"], "all_reduce", 12, 12, "float32", 4, 0),
        (lines["async"], "all_reduce", 12, 12, "float32", 4, 2),
        (line_of(user, "hasty"), "all_reduce", 12, 12, "float32", 4, 0),
        (lines["gather"], "all_gather", 12, 48, "float32", 4, 0),
        (lines["barrier"], "barrier", None, None, rows[4].get("dtype"), 4, 0),
    ]


def test_what_a_backward_of_ddp_averages_is_at_its_line(tmp_path, monkeypatch):
    """DDP does not take the answers of ``fake`` groups on a CPU: one rank of gloo, taken for two."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    user = load(tmp_path, SOURCE)
    step = user.data_parallel()
    monkeypatch.setattr(dist, "get_world_size", lambda group=None: 2)
    rows = rows_of(tmp_path, step)
    dist.destroy_process_group()
    line = line_of(user, "ddp backward")
    assert told(rows, "bytes_in") == [(line, "all_reduce", 4 * (64 + 8))]
    assert rows[0].get("waited_at") is None and rows[0].get("between") is None


def test_what_fsdp_gathers_and_scatters(tmp_path, user):
    rows = rows_of(tmp_path, user.sharded())
    whole = 4 * (64 + 8)
    forward, backward = line_of(user, "forward"), line_of(user, "backward")
    assert told(rows, "bytes_in", "bytes_out", "group") == [
        (forward, "all_gather", whole // 4, whole, rows[0]["group"]),
        (backward, "reduce_scatter", whole, whole // 4, rows[0]["group"]),
    ]


def test_what_a_distributed_tensor_issues_inside_its_operators(tmp_path, user):
    (row,) = rows_of(tmp_path, user.tensors())
    wanted = (line_of(user, "tp"), "all_gather", 64, 256)
    assert (row["at_line"], row["what"], row["bytes_in"], row["bytes_out"]) == wanted
    assert row["between"] == 0


def test_only_the_first_steps_of_its_pass_are_watched(tmp_path, user):
    rows = rows_of(tmp_path, user.explicit, steps=WATCHED + 2)
    assert {row["step"] for row in rows} == set(range(WATCHED))
    assert rows_of(tmp_path, user.explicit, pass_name="loud") == []


def test_on_a_null_device_it_is_the_diagnostic_pass(tmp_path, user):
    with Drive(tmp_path, CommunicationProbe) as drive:
        drive.context.device = NULL
        drive.run("numbers", user.explicit, steps=1)
        assert drive.rows("communication") == []
        drive.run("loud", user.explicit, steps=WATCHED + 1)
        assert len(drive.rows("communication")) == 5 * (WATCHED + 1)


def test_no_more_rows_than_the_limit(tmp_path, user, monkeypatch):
    monkeypatch.setattr(communication, "LOGGED", 7)
    assert len(rows_of(tmp_path, user.explicit, steps=2)) == 7


def test_one_process_is_not_watched(tmp_path, user):
    dist.destroy_process_group()
    assert rows_of(tmp_path, lambda: torch.ones(2) + 1) == []
    dist.init_process_group("gloo")


def test_bytes_on_a_device_count_each_view_once():
    class Fake:
        """A tensor on a device."""

        def __init__(self, tensor, kind="cuda"):
            self._tensor, self.device = tensor, torch.device(kind)
            self.layout, self.nbytes = tensor.layout, tensor.nbytes

        def untyped_storage(self):
            return self._tensor.untyped_storage()

        def storage_offset(self):
            return self._tensor.storage_offset()

    whole = torch.zeros(100)
    assert on_device([Fake(whole[:10]), Fake(whole[10:30]), Fake(whole[10:30])]) == 120
    assert on_device([Fake(whole), Fake(whole[50:])]) == 400
    assert on_device([Fake(whole, "cpu"), Fake(whole, "meta")]) == 0


def test_memory_is_not_looked_at_without_a_device(tmp_path, user):
    with Drive(tmp_path, RankMemoryProbe) as drive:
        drive.run("loud", user.explicit, steps=1)
        assert drive.rows("rank_memory") == []
