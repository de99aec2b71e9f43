"""The settings string is read as torch reads it, and sizes are rounded as torch rounds them."""

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.allocator import AllocatorSettings

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
parse = AllocatorSettings.parse


@pytest.fixture
def torchs_parser():
    """Torch's own parser keeps what it was told: set back around each use."""
    from torch import _C

    told = getattr(_C, "_accelerator_setAllocatorSettings", None)
    if told is None:
        pytest.skip("this torch keeps its parser to itself")
    defaults = "large_segment_size_mb:20,max_non_split_rounding_mb:20,expandable_segments:False"
    told(defaults)
    yield told
    told(defaults)


DIVISIONS = """
    roundup_power2_divisions:8 roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1]
    roundup_power2_divisions:[>:4] roundup_power2_divisions:[1:2,>:4]
    roundup_power2_divisions:[256:4,64:8] roundup_power2_divisions:[65536:2]
    roundup_power2_divisions:[>:2,64:4,>:8]
""".split()


@pytest.mark.parametrize("text", DIVISIONS)
def test_divisions_are_those_that_torch_looks_up(text, torchs_parser):
    """Torch answers this to C++ only; its library is asked by the name of the function in there."""
    import torch

    path = Path(torch.__file__).parent / "lib" / "libc10.so"
    if not path.is_file():
        pytest.skip("no libc10.so on this system")
    library = ctypes.CDLL(str(path))
    name = "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig24roundup_power2_divisionsEm"
    look_up = getattr(library, name, None)
    if look_up is None:
        pytest.skip("this torch has the function under another name")
    look_up.restype, look_up.argtypes = ctypes.c_size_t, [ctypes.c_size_t]
    torchs_parser(text)
    powers = (MIB << power for power in range(18))
    sizes = [1, 511, 512, 513, MIB - 1, *(size for power in powers for size in (power, power + 1))]
    assert [parse(text).divisions(size) for size in sizes] == [look_up(size) for size in sizes]


@pytest.mark.parametrize(
    "text",
    [
        *("expandable_segments:true", "max_split_size_mb:10", "max_split_size_mb:many"),
        *("large_segment_size_mb:10", "roundup_power2_divisions:3", "backend:cudaMallocAsync"),
        *("roundup_power2_divisions:[64:8", "roundup_power2_divisions:[3:4]", ":", "shiny:[1:2]"),
    ],
)
def test_what_torch_refuses_or_nobody_knows_changes_nothing(text):
    assert replace(parse(text), text="") == parse("")
    assert parse(f"{text},expandable_segments:True").text


def test_requests_are_rounded_to_512_bytes():
    """kMinBlockSize = 512 (c10/core/AllocatorConfig.h)."""
    expected = {1: 512, 511: 512, 512: 512, 513: 1024, 1024: 1024}
    expected |= {MIB - 1: MIB, MIB: MIB, MIB + 1: MIB + 512}
    assert {asked: parse("").round_size(asked) for asked in expected} == expected


def test_segments_have_the_sizes_of_get_allocation_size():
    """1 MiB in 2 MiB, 20 MiB below kMinLargeAlloc = 10 MiB, then multiples of 2 MiB."""
    expected = {512: 2 * MIB, MIB: 2 * MIB, MIB + 512: 20 * MIB, 10 * MIB - 512: 20 * MIB}
    expected |= {10 * MIB: 10 * MIB, 10 * MIB + 512: 12 * MIB, GIB + 1: GIB + 2 * MIB}
    assert {rounded: parse("").segment_size(rounded) for rounded in expected} == expected


def test_a_snapshot_tells_the_settings_in_force():
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
        "max_split_size": 256 * MIB,
        "expandable_segments": True,
        "roundup_power2_divisions": {str(1 << power): 4 if power > 7 else 0 for power in range(16)},
    }
    settings = AllocatorSettings.from_snapshot(recorded)
    assert settings.expandable_segments and settings.max_split_size == 256 * MIB
    assert settings.divisions(300 * MIB) == 4 and settings.divisions(100 * MIB) == 0
    assert AllocatorSettings.from_snapshot(None) == parse("")
    assert AllocatorSettings.from_snapshot({"max_split_size": -1}).max_split_size is None
