"""What torch finds: models of GPUs, several of them, and the parts of them that a process may
see.
"""

from __future__ import annotations

import json

import pytest

from torch_null_device import GPUS, Gpu

ASKED = """
import json, torch
p = torch.cuda.get_device_properties(0)
print(json.dumps({"name": p.name, "memory": p.total_memory, "capability": [p.major, p.minor], "processors": p.multi_processor_count,
                  "l2": p.L2_cache_size, "free": torch.cuda.mem_get_info(), "nvml": torch.cuda.device_memory_used() if 0 else None}))
"""


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.key)
def test_torch_sees_the_model(child, gpu: Gpu):
    done = child(ASKED, gpu=gpu.key)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["name"] == gpu.name
    assert said["memory"] == gpu.memory_bytes
    assert said["capability"] == list(gpu.capability)
    assert said["processors"] == gpu.processors
    assert said["l2"] == gpu.l2_bytes
    assert said["free"][1] == gpu.memory_bytes
    assert said["free"][0] > 0.98 * gpu.memory_bytes


SEVERAL = """
import torch
from torch import nn
assert torch.cuda.device_count() == 4
here = torch.randn(1 << 20, device="cuda:0")
there = here.to("cuda:3")
assert there.device.index == 3
assert torch.cuda.memory_allocated(3) == torch.cuda.memory_allocated(0) == 4 << 20
assert torch.cuda.memory_allocated(1) == 0
with torch.cuda.device(2):
    assert torch.empty(1, device="cuda").device.index == 2
assert len({str(torch.cuda.get_device_properties(n).uuid) for n in range(4)}) == 4
assert torch.cuda.can_device_access_peer(0, 1) and not torch.cuda.can_device_access_peer(1, 1)
model = nn.DataParallel(nn.Linear(4, 4).cuda())
model(torch.randn(8, 4, device="cuda")).sum().backward()
for n in range(4):
    torch.cuda.synchronize(n)
try:
    torch.empty(1, device="cuda:4")
except RuntimeError as problem:
    assert "invalid device ordinal" in str(problem), problem
else:
    raise AssertionError("there is no device 4")
"""


def test_four_devices_have_memory_of_their_own(child):
    done = child(SEVERAL, devices=4)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("visible", "count"),
    [("2,0", 2), ("", 0), ("1", 1), ("0,9,1", 1), ("GPU-6e756c6c-2d64-6576-6963-650000000003", 1)],
)
def test_a_process_sees_the_devices_that_it_may(child, visible, count):
    """By NVML, which ``device_count`` asks before CUDA starts, and by the runtime."""
    program = "import torch; print(torch.cuda.device_count(), torch._C._cuda_getDeviceCount())"
    done = child(program, devices=4, CUDA_VISIBLE_DEVICES=visible)
    assert done.stdout.split() == [str(count)] * 2, done.stderr


UNANSWERED = """
import ctypes
from torch_null_device import watching
for _ in range(3):
    print(ctypes.CDLL("libcublas.so.13", use_errno=False).cublasGetLoggerCallback())
print(watching.unanswered())
"""


def test_a_function_without_an_answer_is_named_once_and_returns_an_error(child, tmp_path):
    program = UNANSWERED.replace("libcublas.so.13", "libcudart.so.13").replace(
        "cublasGetLoggerCallback", "cudaGraphicsMapResources"
    )
    done = child(program)
    assert done.stdout.split() == ["801", "801", "801", "['cudaGraphicsMapResources']"], done.stderr
    sentence = (
        "null device: the program called cudaGraphicsMapResources, which the null device does not "
        "answer; it returned error 801."
    )
    assert done.stderr.strip() == sentence
    assert (tmp_path / "unanswered").read_text() == "cudaGraphicsMapResources\n"


FORKED = """
import torch
from torch.utils.data import DataLoader, Dataset

class Words(Dataset):
    def __init__(self):
        self.table = torch.randn(10, 4, device="cuda")
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return self.table[index] * 2

try:
    list(DataLoader(Words(), batch_size=4, num_workers=1))
except RuntimeError as problem:
    assert "initialization error" in str(problem), problem
else:
    raise AssertionError("a forked worker cannot use the device")

class Numbers(Words):
    def __getitem__(self, index):
        return torch.tensor(index)

assert [batch.is_pinned() for batch in DataLoader(Numbers(), batch_size=4, num_workers=2, pin_memory=True)] == [True, True]
torch.randn(3, device="cuda").sum().item()
"""


def test_a_forked_worker_cannot_use_the_device_and_its_parent_goes_on(child):
    done = child(FORKED)
    assert done.returncode == 0, done.stderr[-2000:]
