"""Whole trainings on the null device: precision, optimizers, a ResNet-50, models far larger than
this machine, several ranks.
"""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.usefixtures("inside")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_the_gradient_scaler(dtype):
    model = nn.Linear(8, 8).cuda()
    optimizer, scaler = (
        torch.optim.AdamW(model.parameters(), fused=True),
        torch.amp.GradScaler("cuda"),
    )
    for _ in range(3):
        with torch.autocast("cuda", dtype=dtype):
            out = model(torch.randn(4, 8, device="cuda"))
            assert out.dtype == dtype
            loss = out.float().square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert len(optimizer.state) == 2, "no overflow is seen, so that steps are taken"


FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
OPTIMIZERS = (
    *FUSED,
    "RMSprop",
    "NAdam",
    "RAdam",
    "Adamax",
    "Adadelta",
    "ASGD",
    "Rprop",
    "Adafactor",
)
WAYS: list[tuple[str, dict[str, bool]]] = [(name, {"fused": True}) for name in FUSED]
WAYS += [(name, way) for name in OPTIMIZERS for way in ({}, {"foreach": True}, {"foreach": False})]


@pytest.mark.parametrize(("name", "way"), WAYS, ids=str)
def test_optimizers(name, way):
    model = nn.Linear(8, 8).cuda()
    optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, **way)
    for _ in range(2):
        model(torch.randn(4, 8, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def test_a_resnet_50_trains():
    models = pytest.importorskip("torchvision").models
    model = models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(2):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(
                model(torch.randn(64, 3, 224, 224, device="cuda")),
                torch.zeros(64, dtype=torch.long, device="cuda"),
            )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    kept = (
        64 * 2 * 2 * 11.1e6
    )  # outputs of convolutions and of norms in bf16, 11.1 million an image
    assert kept < torch.cuda.max_memory_allocated() < 1.5 * kept


LARGE = """
import json, resource, torch, torch.nn as nn, torch.nn.functional as F
WIDTH, LAYERS, HEADS, TOKENS, WORDS = 4096, 32, 32, 2048, 32000

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.second(x))))

torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, WORDS, bias=False))
    x = torch.randint(0, WORDS, (1, TOKENS)); y = torch.randint(0, WORDS, (1, TOKENS))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad(); F.cross_entropy(model(x).view(-1, WORDS), y.view(-1)).backward(); optimizer.step()
print(json.dumps([sum(p.numel() for p in model.parameters()), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
                  torch.cuda.memory_reserved(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10]))
"""


def test_a_training_of_6_7_billion_parameters_takes_little_memory_of_ours(child):
    done = child(LARGE)
    assert done.returncode == 0, done.stderr
    parameters, allocated, peak, reserved, ours = json.loads(done.stdout)
    assert parameters > 6.7e9
    assert abs(allocated - 4 * 2 * parameters) < 200 << 20, (
        "weights, gradients and two moments in bf16, and the workspaces"
    )
    assert 62 << 30 < peak < 63 << 30
    assert peak <= reserved < 79 << 30
    assert ours < 1 << 30


def test_it_does_not_fit_on_a_smaller_model(child):
    done = child(LARGE, gpu="A100-40GB")
    assert "OutOfMemoryError" in done.stderr
    assert "total capacity of 39.39 GiB" in done.stderr


SHARDED = """
import json, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=64)
mesh = init_device_mesh("cuda", (64,))
with torch.device("meta"):
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8192, 32768), nn.GELU(), nn.Linear(32768, 8192)) for _ in range(8)])
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for block in model:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    model(torch.randn(4, 8192, device="cuda")).sum().backward()
    optimizer.step(); optimizer.zero_grad()
print(json.dumps([sum(p.numel() for p in model.parameters()), torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()]))
"""


def test_fully_sharded_as_one_of_64_ranks(child):
    done = child(SHARDED)
    assert done.returncode == 0, done.stderr
    parameters, allocated, peak = json.loads(done.stdout)
    assert allocated < parameters * 4 * 3 / 64 * 1.1 + (70 << 20), (
        "a 64th of weights and moments, and cuBLAS' workspaces"
    )
    assert peak < parameters * 4 / 2


PARALLEL = """
import os, torch, torch.nn as nn, torch.distributed as dist
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=WORLD)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4).cuda())
model(torch.randn(2, 4, device="cuda")).sum().backward()
given = torch.full((3,), 2.0, device="cpu").cuda()
gathered = [torch.empty(3, device="cuda") for _ in range(WORLD)]
dist.all_gather(gathered, given)
print([one.tolist() for one in gathered][-1])
dist.all_reduce(given, op=dist.ReduceOp.MAX)
print(given.tolist())
"""


@pytest.mark.parametrize("world", [1, 8])
def test_nccl_as_one_rank_of_several(child, world):
    done = child(PARALLEL.replace("WORLD", str(world)))
    assert done.stdout.split("\n")[:2] == ["[2.0, 2.0, 2.0]", "[2.0, 2.0, 2.0]"], done.stderr
