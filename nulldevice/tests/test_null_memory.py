"""torch's own caching allocator on the null device: sizes, segments, out of memory; and what is
read back.
"""

from __future__ import annotations

import json
import re

import pytest
import torch

from torch_null_device import gpu_named, watching

pytestmark = pytest.mark.usefixtures("inside")

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh():
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def test_small_and_large_blocks_come_from_segments_of_torch_s_sizes():
    known = {one["address"] for one in torch.cuda.memory_snapshot()}
    before = torch.cuda.memory_allocated()
    small = torch.empty(100, device="cuda")
    large = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
    huge = torch.empty(33 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before == 512 + 5 * MIB + 34 * MIB, (
        "1 MiB of the segment is too little to split off"
    )
    new = sorted(
        one["total_size"] for one in torch.cuda.memory_snapshot() if one["address"] not in known
    )
    assert new[-2:] == [20 * MIB, 34 * MIB], "kLargeBuffer, and rounding to 2 MiB"
    del small, large, huge
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + 38 * MIB


def test_the_driver_hands_out_what_torch_reserves():
    used, reserved = watching.used_bytes(), torch.cuda.memory_reserved()
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    assert watching.used_bytes() - used == torch.cuda.memory_reserved() - reserved == 1 << 30
    free, total = torch.cuda.mem_get_info()
    assert total - free == watching.used_bytes() + (gpu_named("H100").context_mib << 20)
    del block
    torch.cuda.empty_cache()
    assert watching.used_bytes() == used


def test_out_of_memory_comes_at_the_model_s_size_as_torch_s_own_error():
    free, total = torch.cuda.mem_get_info()
    unit = 1 << 30
    kept = torch.empty(free // unit * unit, dtype=torch.uint8, device="cuda")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(2 * unit, dtype=torch.uint8, device="cuda")
    assert f"total capacity of {total / unit:.2f} GiB" in str(caught.value)
    assert "Tried to allocate 2.00 GiB" in str(caught.value)
    del kept
    torch.empty(2 * unit, dtype=torch.uint8, device="cuda")


def test_memory_costs_no_pages_of_ours():
    def resident() -> int:
        return int(re.search(r"VmRSS:\s+(\d+) kB", open("/proc/self/status").read())[1]) << 10

    before = resident()
    tensor = torch.zeros(60 << 30, dtype=torch.uint8, device="cuda")
    tensor.add_(1)
    assert resident() - before < 100 * MIB


def test_what_the_host_wrote_is_read_back_until_a_kernel_runs():
    assert torch.tensor(5.0, device="cuda").item() == 5.0
    there = torch.arange(1000).cuda()
    assert there.cpu().equal(torch.arange(1000))
    assert there.clone()[7].item() == 7, "copies within the device carry it"
    there.add_(1)
    assert there.cpu().count_nonzero() == 0, "zero, never an older value"
    assert torch.full((4,), 7.0).cuda().sum().item() == 0.0


def test_parts_of_what_was_written_are_overwritten_in_place():
    there = torch.arange(100, dtype=torch.uint8).cuda()
    there[10:20].copy_(torch.full((10,), 200, dtype=torch.uint8))
    assert there.tolist() == [*range(10), *[200] * 10, *range(20, 100)]
    there[:50].copy_(torch.zeros(50, dtype=torch.uint8))
    assert there.tolist() == [0] * 50 + list(range(50, 100))


def test_pinned_memory_is_real_and_known():
    pinned = torch.arange(10).pin_memory()
    assert pinned.is_pinned()
    assert pinned.tolist() == list(range(10))
    assert not torch.arange(10).is_pinned()
    assert pinned.to("cuda", non_blocking=True).to("cpu", non_blocking=True).tolist() == list(
        range(10)
    )


def test_the_history_and_the_snapshot_are_torch_s_own():
    torch.cuda.memory._record_memory_history()
    try:
        kept = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    traced = [
        entry
        for entries in snapshot["device_traces"]
        for entry in entries
        if entry["action"] == "alloc"
    ]
    assert traced[-1]["size"] == kept.untyped_storage().nbytes()
    assert any(frame["filename"] == __file__ for frame in traced[-1]["frames"])


SETTINGS = """
import json, torch
kept = [torch.empty(300 << 20, dtype=torch.uint8, device="cuda") for _ in range(5)]
del kept[::2]
more = torch.empty(700 << 20, dtype=torch.uint8, device="cuda")
found = [torch.cuda.memory_allocated() >> 20, torch.cuda.memory_reserved() >> 20]
found += [[one["total_size"] >> 20 for one in torch.cuda.memory_snapshot()]] if SNAPSHOT else []
free, total = torch.cuda.mem_get_info()
del kept, more
torch.cuda.empty_cache()
print(json.dumps([*found, total - free >> 20, torch.cuda.memory_reserved() >> 20]))
"""


@pytest.mark.parametrize(
    ("setting", "snapshot", "expected"),
    [
        (
            "expandable_segments:False",
            True,
            [1300, 2200, [300, 300, 300, 300, 300, 700], 522 + 2200, 0],
        ),
        ("expandable_segments:True", True, [1300, 1900, [1900], 522 + 1900, 0]),
        ("backend:cudaMallocAsync", False, [1300, 1300, 522 + 1300, 0]),
    ],
)
def test_settings_of_the_allocator(child, setting, snapshot, expected):
    done = child(SETTINGS.replace("SNAPSHOT", str(snapshot)), PYTORCH_CUDA_ALLOC_CONF=setting)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert [sorted(one) if isinstance(one, list) else one for one in said] == expected


def test_expandable_segments_run_out_at_the_model_s_size(child):
    program = (
        "import torch\ntry: torch.empty(3 << 30, dtype=torch.uint8, device='cuda')\nexcept "
        "torch.OutOfMemoryError as e: print(e)"
    )
    done = child(program, memory_bytes=2 << 30, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert "total capacity of 2.00 GiB" in done.stdout, done.stderr
