"""What the allocator says, refuses and writes down; its blocks: test_held_to_torch.py."""

import copy
import pickle
import sys

import pytest

from auditor.allocator import AllocatorSettings, CachingAllocator, OutOfMemory

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def card(size=1 * GIB, config="", **options):
    return CachingAllocator(size, settings=AllocatorSettings.parse(config), **options)


def reserved(allocator):
    return allocator.stats()["reserved_bytes.all.current"]


def test_a_full_device_raises_in_torchs_words():
    allocator = card(100 * MIB, outside_bytes=4 * MIB)
    allocator.malloc(50 * MIB)
    allocator.malloc(12 * MIB)
    with pytest.raises(OutOfMemory) as raised:
        allocator.malloc(41 * MIB, now_us=5)
    assert str(raised.value) == (
        "CUDA out of memory. Tried to allocate 42.00 MiB. GPU 0 has a total capacity of 100.00 MiB "
        "of which 34.00 MiB is free. "
        "Including non-PyTorch memory, this process has 66.00 MiB memory in use. Of the allocated "
        "memory 62.00 MiB is allocated "
        "by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If reserved but "
        "unallocated memory is large try setting"
        " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See "
        "documentation for Memory Management"
        "  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    assert allocator.snapshot()["device_traces"][0][-1] == {
        "action": "oom",
        "device_free": 34 * MIB,
        "size": 41 * MIB,
        "stream": 0,
        "time_us": 5,
        "frames": [],
    }
    assert allocator.malloc(30 * MIB), "the allocator lives on"
    assert (
        pickle.loads(pickle.dumps(raised.value)).shortage
        == copy.copy(raised.value).shortage
        == raised.value.shortage
    )


def test_what_one_stack_allocated_shares_its_list_in_a_snapshot():
    allocator, stack = card(), [{"filename": "t.py", "line": 7, "name": "step"}]
    for _ in range(2):
        allocator.malloc(30 * MIB, frames=stack)
    snapshot = allocator.snapshot()
    held = [block for segment in snapshot["segments"] for block in segment["blocks"]]
    rows = [*snapshot["segments"], *snapshot["device_traces"][0], *held]
    assert len(rows) >= 8
    assert {id(row["frames"]) for row in rows if row["frames"]} == {id(stack)}


def test_no_bytes_take_nothing():
    allocator = card()
    assert allocator.malloc(0) == 0
    allocator.free(0)
    assert reserved(allocator) == 0


@pytest.mark.parametrize("address", [1, 0x7F0000000200])
def test_freeing_what_is_not_live_is_an_error(address):
    allocator = card()
    allocator.malloc(100)
    with pytest.raises(ValueError, match="no live block"):
        allocator.free(address)


def test_a_negative_size_is_an_error():
    with pytest.raises(ValueError, match="-1 bytes"):
        card().malloc(-1)


def calls_made(pairs, config):
    """Python and C calls of a program of so many allocations, a quarter live at a time."""
    allocator, made = card(1 << 44, config), 0

    def count(frame, event, argument):
        nonlocal made
        made += event in ("call", "c_call")

    held = []
    sys.setprofile(count)
    try:
        for number in range(pairs):
            held.append(allocator.malloc(700 * (1 + number % 97), now_us=number))
            if number % 4:
                allocator.free(held.pop((number * 7919) % len(held)), number)
    finally:
        sys.setprofile(None)
    return made


@pytest.mark.parametrize("config", ["", "expandable_segments:True", "max_split_size_mb:32"])
def test_work_grows_in_step_with_the_program(config):
    small, large = calls_made(500, config), calls_made(4000, config)
    assert large < 8 * 1.3 * small
