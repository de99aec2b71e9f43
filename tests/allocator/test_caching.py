"""What the allocator does step by step, worked out by hand from torch's source.

Constants: c10/core/AllocatorConfig.h: kMinBlockSize 512 B, kSmallSize 1 MiB, kSmallBuffer 2 MiB,
large_segment_size_ 20 MiB (before 2.10 kLargeBuffer), kMinLargeAlloc 10 MiB, kRoundLarge 2 MiB.
Functions: c10/cuda/CUDACachingAllocator.cpp.
"""

import copy
import pickle
import sys

import pytest

from auditor.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from auditor.allocator.caching import format_size

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def card(size=1 * GIB, config="", **options):
    return CachingAllocator(size, settings=AllocatorSettings.parse(config), **options)


def layout(allocator):
    """Segments as (pool, blocks), a block as its size, negative where it is free."""
    return [
        (
            segment["segment_type"],
            [
                each["size"] * (-1 if each["state"] == "inactive" else 1)
                for each in segment["blocks"]
            ],
        )
        for segment in allocator.snapshot()["segments"]
    ]


def events(allocator, *kinds):
    return [
        (row["action"], row["size"])
        for row in allocator.snapshot()["device_traces"][0]
        if row["action"] in kinds
    ]


def reserved(allocator):
    return allocator.stats()["reserved_bytes.all.current"]


def test_a_remainder_of_1_mib_is_not_split_off_in_the_large_pool():
    """``should_split``: the remainder must be more than kSmallSize."""
    allocator = card()
    allocator.malloc(19 * MIB)  # its own segment, of 20 MiB
    allocator.malloc(19 * MIB - 512)
    assert layout(allocator) == [("large", [20 * MIB]), ("large", [19 * MIB - 512, -(MIB + 512)])]


def test_in_the_small_pool_512_bytes_are_split_off():
    allocator = card()
    allocator.malloc(MIB)
    allocator.malloc(MIB - 512)
    assert layout(allocator) == [("small", [MIB, MIB - 512, -512])]


def test_the_smallest_block_that_fits_is_taken_and_of_equals_the_lowest():
    allocator = card()
    held = [allocator.malloc(size * MIB) for size in (64, 32, 48, 32)]
    for address in held:
        allocator.free(address)
    assert allocator.malloc(31 * MIB + MIB // 2) == held[1]
    assert allocator.malloc(31 * MIB + MIB // 2) == held[3]
    assert allocator.malloc(33 * MIB) == held[2]


def test_a_freed_block_joins_both_neighbours():
    allocator = card()
    first, second, third = (allocator.malloc(2 * MIB) for _ in range(3))
    allocator.free(first)
    allocator.free(third)
    assert layout(allocator) == [("large", [-2 * MIB, 2 * MIB, -16 * MIB])]
    stats = allocator.stats()
    assert (
        stats["inactive_split.large_pool.current"],
        stats["inactive_split_bytes.all.current"],
    ) == (2, 18 * MIB)
    allocator.free(second)
    assert layout(allocator) == [("large", [-20 * MIB])]
    stats = allocator.stats()
    assert (
        stats["inactive_split.large_pool.current"],
        stats["inactive_split_bytes.all.current"],
    ) == (0, 0)


def test_a_block_that_another_stream_uses_waits_for_its_free_to_end():
    allocator = card()
    address = allocator.malloc(5 * MIB)
    allocator.free(address, pending=True)
    stats = allocator.stats()
    assert (stats["allocated_bytes.all.current"], stats["active_bytes.all.current"]) == (0, 5 * MIB)
    assert allocator.snapshot()["segments"][0]["blocks"][0]["state"] == "active_pending_free"
    assert allocator.malloc(5 * MIB) != address
    allocator.complete_free(address)
    assert allocator.malloc(5 * MIB) == address


def test_a_full_device_gets_its_cache_back_and_is_asked_again():
    """``malloc``: ``release_cached_blocks``, then ``alloc_block`` with ``isRetry``, which counts
    num_alloc_retries.
    """
    allocator = card(100 * MIB)
    allocator.free(allocator.malloc(60 * MIB))
    allocator.malloc(80 * MIB)
    assert events(allocator, "segment_alloc", "segment_free") == [
        ("segment_alloc", 60 * MIB),
        ("segment_free", 60 * MIB),
        ("segment_alloc", 80 * MIB),
    ]
    stats = allocator.stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"], stats["num_sync_all_streams"]) == (
        1,
        0,
        1,
    )


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


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1024, "1024 bytes"),
        (1536, "1.50 KiB"),
        (MIB, "1024.00 KiB"),
        (GIB, "1024.00 MiB"),
        (3 * GIB, "3.00 GiB"),
    ],
)
def test_sizes_are_written_as_torch_writes_them(size, text):
    """``format_size`` (CUDACachingAllocator.cpp): a unit is used above, not from, one of it."""
    assert format_size(size) == text


def test_empty_cache_gives_whole_segments_back_and_keeps_the_others():
    allocator = card()
    kept, freed, small = (
        allocator.malloc(5 * MIB),
        allocator.malloc(30 * MIB),
        allocator.malloc(100),
    )
    allocator.free(freed)
    allocator.free(small)
    allocator.empty_cache()
    assert layout(allocator) == [("large", [5 * MIB, -15 * MIB])]
    allocator.free(kept)
    allocator.empty_cache()
    assert reserved(allocator) == 0
    assert allocator.stats()["num_device_free"] == 3


def test_oversize_blocks_are_not_split_and_not_given_to_small_requests():
    """``get_free_block``: with max_split_size 64 MiB a cached block of 100 MiB serves neither 30
    MiB nor, being more than max_non_split_rounding (20 MiB) larger, 80 MiB; it does serve 81 MiB,
    whole.
    """
    allocator = card(config="max_split_size_mb:64")
    big = allocator.malloc(100 * MIB)
    allocator.free(big)
    assert allocator.malloc(30 * MIB) != big
    assert allocator.malloc(80 * MIB) != big
    assert allocator.malloc(81 * MIB) == big
    assert layout(allocator) == [
        ("large", [100 * MIB]),
        ("large", [30 * MIB]),
        ("large", [80 * MIB]),
    ]
    stats = allocator.stats()
    assert (stats["oversize_allocations.current"], stats["oversize_segments.current"]) == (2, 2)


def test_only_enough_oversize_blocks_go_before_a_retry():
    """``release_available_cached_blocks``: no single block is large enough, so the largest go until
    their sum is.
    """
    allocator = card(300 * MIB, "max_split_size_mb:64")
    for address in [allocator.malloc(size * MIB) for size in (70, 80, 90)] + [
        allocator.malloc(30 * MIB)
    ]:
        allocator.free(address)
    allocator.malloc(170 * MIB)
    assert events(allocator, "segment_free") == [
        ("segment_free", 90 * MIB),
        ("segment_free", 80 * MIB),
    ]
    assert allocator.stats()["num_alloc_retries"] == 0


def test_an_expandable_segment_grows_by_pages():
    """Pages of 20 MiB in the large pool, of 2 MiB in the small one (Note [Expandable Segments])."""
    allocator = card(config="expandable_segments:True")
    allocator.malloc(15 * MIB)
    allocator.malloc(15 * MIB)
    allocator.malloc(100)
    assert layout(allocator) == [
        ("large", [15 * MIB, 15 * MIB, -10 * MIB]),
        ("small", [512, 512 - 2 * MIB]),
    ]
    assert events(allocator, "segment_map") == [
        ("segment_map", 20 * MIB),
        ("segment_map", 20 * MIB),
        ("segment_map", 2 * MIB),
    ]
    assert allocator.stats()["segment.all.current"] == 0, "torch counts no segments here"


def test_pages_inside_an_expandable_segment_go_back_and_are_filled_again():
    allocator = card(config="expandable_segments:True")
    first, second, third = (allocator.malloc(30 * MIB) for _ in range(3))
    assert third == first + 60 * MIB
    allocator.free(second)
    allocator.empty_cache()  # of 30..60 MiB only the page 40..60 is free as a whole
    assert events(allocator, "segment_unmap") == [("segment_unmap", 20 * MIB)]
    assert layout(allocator) == [("large", [30 * MIB, -10 * MIB]), ("large", [30 * MIB, -10 * MIB])]
    assert allocator.malloc(25 * MIB) == second
    assert layout(allocator) == [("large", [30 * MIB, 25 * MIB, -5 * MIB, 30 * MIB, -10 * MIB])]


def test_a_block_that_can_grow_counts_as_large_as_it_could_become():
    """``expandable_size``: of 10 free MiB at the end and 15 free MiB in between, 8 MiB go in
    between.
    """
    allocator = card(config="expandable_segments:True")
    between, _ = allocator.malloc(15 * MIB), allocator.malloc(15 * MIB)
    allocator.free(between)
    assert layout(allocator) == [("large", [-15 * MIB, 15 * MIB, -10 * MIB])]
    assert allocator.malloc(8 * MIB) == between


def test_an_expandable_segment_without_memory_gives_up_its_addresses():
    """``release_expandable_segment``: the next one is reserved anew."""
    allocator = card(config="expandable_segments:True")
    first, second = allocator.malloc(30 * MIB), allocator.malloc(35 * MIB)
    allocator.free(second)
    allocator.empty_cache()
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.malloc(30 * MIB) > second


def test_part_of_a_mapping_stays_when_the_device_is_full():
    """``alloc_block`` fails as a whole: ``map`` takes all its pages or none."""
    allocator = card(50 * MIB, "expandable_segments:True")
    allocator.malloc(25 * MIB)
    with pytest.raises(OutOfMemory) as raised:
        allocator.malloc(30 * MIB)
    assert raised.value.shortage.free == 10 * MIB
    assert layout(allocator) == [("large", [25 * MIB, -15 * MIB])]


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


def test_frames_and_times_reach_the_snapshot():
    allocator, frames = card(device=1), [{"filename": "train.py", "line": 3, "name": "step"}]
    allocator.free(allocator.malloc(100, 0, frames, 10), 11)
    kept = allocator.malloc(200, 0, frames, 12)
    snapshot = allocator.snapshot()
    assert snapshot["device_traces"][0] == []
    assert [
        (row["action"], row["time_us"], row["frames"]) for row in snapshot["device_traces"][1]
    ] == [
        ("segment_alloc", 10, frames),
        ("alloc", 10, frames),
        ("free_requested", 11, frames),
        ("free_completed", 11, frames),
        ("alloc", 12, frames),
    ]
    assert snapshot["segments"][0]["blocks"][0] == {
        "address": kept,
        "size": 512,
        "requested_size": 200,
        "state": "active_allocated",
        "frames": frames,
    }
    assert snapshot["segments"][0]["frames"] == frames
    allocator.free(kept, 13)
    assert allocator.snapshot()["segments"][0]["blocks"][0]["frames"] == []


def test_the_history_can_be_a_ring():
    allocator = card(history_limit=4)
    for _ in range(10):
        allocator.free(allocator.malloc(100))
    assert len(allocator.snapshot()["device_traces"][0]) == 4


def calls_made(pairs: int, config: str) -> int:
    """Python and C calls that a program of so many allocations makes, a quarter of them live at a
    time and in between.
    """
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
