"""torch.distributed with one process: nothing changes a value, more ranks are refused."""

import contextlib
import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.distributed import DistributedSampler

from auditor.capture.shadow import ShadowLimit, shadow_cuda
from tests.shadow.listening import Heard
from tests.shadow.test_device import Memory

pytestmark = [
    pytest.mark.skipif(not dist.is_available(), reason="this torch has no torch.distributed"),
    pytest.mark.filterwarnings("ignore:`torch.distributed"),  # new names, which torch 2.8 lacks
    pytest.mark.filterwarnings("ignore:Attempted to get default timeout for nccl"),
]
ONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


@pytest.fixture
def rank(monkeypatch):
    """The environment of torchrun with one process, in a rehearsal."""
    for name, value in ONE.items():
        monkeypatch.setenv(name, value)
    with shadow_cuda() as device:
        yield device
    assert not dist.is_initialized()


@pytest.fixture
def nccl(rank):
    dist.init_process_group("nccl")
    return rank


def train(device, parallel):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.SiLU(), nn.Linear(16, 1)).to(
        device
    )
    if parallel:
        net = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net), device_ids=[0])
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for number in range(6):
        x = torch.randn(5, 8, generator=torch.Generator().manual_seed(number))
        with net.no_sync() if parallel and number % 2 == 0 else contextlib.nullcontext():
            loss = net(x if parallel else x.to(device)).square().mean()
            loss.backward()
        if number % 2:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        shown = loss.detach().clone()
        if parallel:
            dist.all_reduce(shown, op=dist.ReduceOp.AVG)
        losses.append(shown.item())
    return losses, {name: value.cpu() for name, value in net.state_dict().items()}


def test_a_parallel_trainer_is_the_cpu_run_bit_for_bit(nccl):
    losses, state = train("cpu", parallel=False)
    got, got_state = train("cuda", parallel=True)
    assert got == losses
    assert list(got_state) == [f"module.{name}" for name in state]
    assert all(torch.equal(got_state[f"module.{name}"], value) for name, value in state.items())


@pytest.mark.parametrize(
    "call",
    [
        lambda: dist.init_process_group("nccl"),
        lambda: dist.init_process_group(),
        lambda: dist.init_process_group("cpu:gloo,cuda:nccl", init_method="env://"),
        lambda: dist.init_process_group(
            "nccl", init_method="tcp://localhost:29511", rank=0, world_size=1
        ),
        lambda: dist.init_process_group(backend="nccl", device_id=torch.device(0)),
        lambda: init_device_mesh("cuda", (1,), mesh_dim_names=("data",)),
    ],
)
def test_ways_to_a_group_of_one(rank, call):
    call()
    given = (
        dist.is_initialized(),
        dist.get_rank(),
        dist.get_world_size(),
        dist.is_nccl_available(),
    )
    assert given == (True, 0, 1, True)
    assert "nccl" in dist.get_backend()
    dist.destroy_process_group()
    assert not dist.is_initialized()


def test_collectives_of_one_rank(nccl):
    x, out = torch.arange(4.0, device="cuda"), torch.zeros(4, device="cuda")
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        dist.all_reduce(x, op=op)
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and work.is_completed()
    assert work.result()[0] is work.get_future().wait()[0] is x
    dist.broadcast(x, 0)
    dist.reduce(x, dst=0)
    dist.barrier()
    assert x.tolist() == [0, 1, 2, 3]
    calls = {
        "all_gather": lambda: dist.all_gather([out], x),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(out, x),
        "reduce_scatter": lambda: dist.reduce_scatter(out, [x]),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(out, x, op=dist.ReduceOp.AVG),
        "all_to_all": lambda: dist.all_to_all([out], [x]),
        "all_to_all_single": lambda: dist.all_to_all_single(out, x),
        "gather": lambda: dist.gather(x, [out], dst=0),
        "scatter": lambda: dist.scatter(out, [x], src=0),
    }
    for name, call in calls.items():
        out.zero_()
        call()
        assert out.tolist() == [0, 1, 2, 3] and out.is_cuda, name
    objects = [None]
    dist.all_gather_object(objects, {"loss": 1})
    dist.broadcast_object_list(objects, src=0)
    assert objects == [{"loss": 1}]


def test_groups_meshes_and_samplers(nccl):
    group = dist.new_group([0], backend="nccl")
    x = torch.ones(2, device="cuda")
    dist.all_reduce(x, group=group)
    assert (x.tolist(), dist.get_backend(group), dist.get_world_size(group)) == ([1, 1], "nccl", 1)
    mesh = init_device_mesh("cuda", (1,))
    net = DistributedDataParallel(nn.Linear(2, 2).cuda(), device_mesh=mesh)
    assert net(x).is_cuda
    assert list(DistributedSampler(range(4), shuffle=False)) == [0, 1, 2, 3]


def test_what_waits(rank):
    heard = Heard()
    rank.stop()
    with shadow_cuda(heard):
        dist.init_process_group("nccl")
        net = DistributedDataParallel(nn.Linear(2, 2).cuda(), device_ids=[0])
        heard.forget()
        net(torch.ones(1, 2))
        dist.all_reduce(torch.ones(1, device="cuda"))
        dist.barrier()
    assert [(c.kind, c.operator) for c in heard.crossings if c.blocking] == [
        ("copy", "Tensor.to"),  # DistributedDataParallel moves its inputs itself
        ("synchronize", "torch.distributed.barrier"),
    ]


@pytest.mark.parametrize("views", [False, True])
def test_the_buckets_of_the_reducer_are_held(rank, views):
    memory = Memory()
    rank.stop()
    with shadow_cuda(memory):
        dist.init_process_group("nccl")
        net = nn.Linear(256, 256, bias=False).cuda()
        before = sum(memory.live.values())
        parallel = DistributedDataParallel(net, gradient_as_bucket_view=views)
        assert sum(memory.live.values()) - before == (0 if views else before)
        del parallel
        assert sum(memory.live.values()) == before


def test_copies_and_hooks(nccl):
    net = DistributedDataParallel(
        nn.Linear(2, 2).cuda(), static_graph=True, find_unused_parameters=True
    )
    again = copy.deepcopy(net)
    assert (
        again.module.weight is not net.module.weight
        and again(torch.ones(1, 2, device="cuda")).is_cuda
    )
    with net.join():
        net(torch.ones(1, 2, device="cuda")).sum().backward()
    with pytest.raises(ShadowLimit, match="register_comm_hook"):
        net.register_comm_hook(None, lambda state, bucket: None)
    on_host = DistributedDataParallel(nn.Linear(2, 2))  # torch's own, over Gloo
    on_host(torch.ones(1, 2)).sum().backward()
    assert on_host.module.weight.grad is not None


def test_errors_are_torchs(rank, monkeypatch):
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(nn.Linear(2, 2).cuda())
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match="RANK expected"):
        dist.init_process_group("nccl")
    dist.init_process_group("nccl", rank=0, world_size=1, init_method="tcp://localhost:29511")
    with pytest.raises(RuntimeError, match="not needed"):
        DistributedDataParallel(nn.Linear(2, 2).cuda().requires_grad_(False))
    with pytest.raises(ValueError, match="device_ids"):
        DistributedDataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1])


@pytest.mark.parametrize(
    "call",
    [
        lambda: dist.init_process_group("nccl"),
        lambda: dist.init_process_group(),
        lambda: dist.init_process_group(
            "nccl", rank=0, world_size=2, init_method="tcp://localhost:1"
        ),
        lambda: init_device_mesh("cuda", (2,)),
        lambda: init_device_mesh("cuda", (1, 2), mesh_dim_names=("data", "model")),
    ],
)
def test_more_ranks_are_refused_in_one_sentence(rank, monkeypatch, call):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(
        ShadowLimit,
        match=r"^torch.distributed.init_process_group: one rank on one GPU is simulated, not 2$",
    ):
        call()


def test_sharding_is_refused(nccl):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    net = nn.Linear(2, 2).cuda()
    for call in (lambda: fsdp.FullyShardedDataParallel(net), lambda: fsdp.fully_shard(net)):
        with pytest.raises(ShadowLimit, match="split over GPUs"):
            call()
