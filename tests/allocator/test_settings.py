"""The settings string is read as torch reads it, and sizes are rounded as torch rounds them."""

import ctypes
from pathlib import Path

import pytest

from auditor.allocator import AllocatorSettings

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
parse = AllocatorSettings.parse

ACCEPTED = [
    "",
    "expandable_segments:True",
    "expandable_segments:False",
    "expandable_segments:True,",
    "max_split_size_mb:20",
    "max_split_size_mb:128",
    " garbage_collection_threshold : 0.8 , max_split_size_mb : 128 ",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[64:0]",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "max_split_size_mb:64,max_non_split_rounding_mb:30",
    "large_segment_size_mb:11",
    "per_process_memory_fraction:0.5",
    "pinned_use_background_threads:True",
]
REFUSED = {
    "expandable_segments:true": "expandable_segments must be True or False, not 'true'",
    "expandable_segments=True": "'expandable_segments=True' in the allocator settings has "
    "not the form key:value",
    "expandable_segments:[True]": "expandable_segments must be True or False, not '[True]'",
    "max_split_size_mb": "'max_split_size_mb' in the allocator settings has not the form key:value",
    "max_split_size_mb:": "max_split_size_mb has no value",
    "max_split_size_mb:10": "max_split_size_mb must be at least 20",
    "max_split_size_mb:0": "max_split_size_mb must be at least 20",
    "max_split_size_mb:many": "max_split_size_mb must be a whole number, not 'many'",
    "max_split_size_mb:32,large_segment_size_mb:64": "max_split_size_mb must be at least 64",
    "max_non_split_rounding_mb:10": "max_non_split_rounding_mb must be at least 20",
    "large_segment_size_mb:10": "large_segment_size_mb must be above 10",
    "garbage_collection_threshold:0": "garbage_collection_threshold must lie between 0 and 1",
    "garbage_collection_threshold:1.5": "garbage_collection_threshold must lie between 0 and 1",
    "roundup_power2_divisions:3": "roundup_power2_divisions must be a power of two, not 3",
    "roundup_power2_divisions:0": "roundup_power2_divisions must be a power of two, not 0",
    "roundup_power2_divisions:[3:4]": "roundup_power2_divisions must be a power of two, not 3",
    "roundup_power2_divisions:[64:8,>:3]": "roundup_power2_divisions must be a power of two, not 3",
    "roundup_power2_divisions:[64:8": "the list of roundup_power2_divisions is not closed by ]",
    ":": "':' in the allocator settings has not the form key:value",
    "max_split_size_mb:128;x:1": "max_split_size_mb must be a whole number, not '128;x:1'",
}


@pytest.fixture
def torchs_parser():
    """Torch's own parser, which keeps what it was told: set back to its defaults around each
    use.
    """
    from torch import _C

    told = getattr(_C, "_accelerator_setAllocatorSettings", None)
    if told is None:
        pytest.skip("this torch keeps its parser to itself")
    defaults = "large_segment_size_mb:20,max_non_split_rounding_mb:20,expandable_segments:False"
    told(defaults)
    yield told
    told(defaults)


@pytest.mark.parametrize("text", ACCEPTED)
def test_what_torch_accepts_is_accepted(text, torchs_parser):
    torchs_parser(text)
    settings = parse(text)
    assert settings.unknown == ()
    assert settings.text == text


DIVISIONS = [
    "roundup_power2_divisions:8",
    "roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]",
    "roundup_power2_divisions:[>:4]",
    "roundup_power2_divisions:[1:2,>:4]",
    "roundup_power2_divisions:[256:4,64:8]",
    "roundup_power2_divisions:[65536:2]",
    "roundup_power2_divisions:[>:2,64:4,>:8]",
]


@pytest.mark.parametrize("text", DIVISIONS)
def test_divisions_are_those_that_torch_looks_up(text, torchs_parser):
    """Torch answers this to C++ only; its library is asked by the name of the function in there."""
    import torch

    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not path.is_file():
        pytest.skip("no libc10.so on this system")
    library = ctypes.CDLL(str(path))
    look_up = getattr(
        library,
        "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig24roundup_power2_divisionsEm",
        None,
    )
    if look_up is None:
        pytest.skip("this torch has the function under another name")
    look_up.restype, look_up.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    torchs_parser(text)
    sizes = [
        1,
        511,
        512,
        513,
        MIB - 1,
        *(size for power in range(18) for size in (MIB << power, (MIB << power) + 1)),
    ]
    assert [parse(text).divisions(size) for size in sizes] == [look_up(size) for size in sizes]


@pytest.mark.parametrize("text", REFUSED)
def test_what_torch_refuses_is_refused_in_one_sentence(text, torchs_parser):
    with pytest.raises((ValueError, RuntimeError)):
        torchs_parser(text)
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value) == REFUSED[text]


def test_values_are_kept_in_bytes():
    settings = parse(
        "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.6,large_segment_size_mb:40"
    )
    assert settings.expandable_segments
    assert settings.max_split_size == 128 * MIB
    assert settings.garbage_collection_threshold == 0.6
    assert settings.large_segment_size == 40 * MIB


def test_keys_that_are_not_followed_are_reported():
    settings = parse(
        "backend:cudaMallocAsync,shiny_new_key:[1:2,3:4],pinned_num_register_threads:8,other:5"
    )
    assert settings.unmodelled == (
        ("backend", "cudaMallocAsync"),
        ("pinned_num_register_threads", "8"),
    )
    assert settings.unknown == (("shiny_new_key", "[1:2,3:4]"), ("other", "5"))


@pytest.mark.parametrize(
    ("asked", "rounded"),
    [
        (1, 512),
        (511, 512),
        (512, 512),
        (513, 1024),
        (1024, 1024),
        (MIB - 1, MIB),
        (MIB, MIB),
        (MIB + 1, MIB + 512),
    ],
)
def test_requests_are_rounded_to_512_bytes(asked, rounded):
    """kMinBlockSize = 512 (c10/core/AllocatorConfig.h)."""
    assert parse("").round_size(asked) == rounded


@pytest.mark.parametrize(
    ("asked", "rounded"),
    [
        (1200 * KIB, 1280 * KIB),
        (1024 * KIB, 1024 * KIB),
        (1793 * KIB, 2048 * KIB),
        (2048, 2048),
        (1025, 1536),
        (2049, 2560),
    ],
)
def test_sizes_are_rounded_to_divisions_of_a_power_of_two(asked, rounded):
    """The example of ``roundup_power2_next_division`` (CUDACachingAllocator.cpp): 1200 of 4
    divisions becomes 1280.

    Only sizes above kMinBlockSize * divisions = 2048 are rounded so; 1025 goes to the next multiple
    of 512.
    """
    assert parse("roundup_power2_divisions:4").round_size(asked) == rounded


def test_divisions_are_looked_up_by_the_power_of_two_below_a_size():
    """The values that torch's own test (c10/test/core/AllocatorConfig_test.cpp) expects of this
    string.
    """
    settings = parse("roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]")
    expected = {
        1: 8,
        32: 8,
        64: 8,
        128: 2,
        256: 4,
        512: 2,
        1024: 4,
        2048: 1,
        4096: 1,
        8192: 1,
        65536: 1,
        10**6: 1,
    }
    assert {size: settings.divisions(size * MIB) for size in expected} == expected
    assert settings.divisions(100 * MIB) == 8
    assert settings.divisions(512) == 8


@pytest.mark.parametrize(
    ("rounded", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (GIB + 1, GIB + 2 * MIB),
    ],
)
def test_segments_have_the_sizes_of_get_allocation_size(rounded, segment):
    """kSmallSize 1 MiB, kSmallBuffer 2 MiB, 20 MiB below kMinLargeAlloc = 10 MiB, then multiples of
    kRoundLarge = 2 MiB.
    """
    assert parse("").segment_size(rounded) == segment


def test_a_snapshot_tells_the_settings_in_force():
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
        "max_split_size": 256 * MIB,
        "garbage_collection_threshold": 0.5,
        "expandable_segments": True,
        "roundup_power2_divisions": {str(1 << power): 4 if power > 7 else 0 for power in range(16)},
    }
    settings = AllocatorSettings.from_snapshot(recorded)
    assert settings.expandable_segments and settings.max_split_size == 256 * MIB
    assert settings.garbage_collection_threshold == 0.5
    assert settings.divisions(300 * MIB) == 4 and settings.divisions(100 * MIB) == 0
    assert AllocatorSettings.from_snapshot(None) == parse("")
    assert AllocatorSettings.from_snapshot({"max_split_size": -1}).max_split_size is None
