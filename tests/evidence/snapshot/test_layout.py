"""A memory snapshot is read whole or not at all: what torch never writes stops at the door."""

import copy
import math

import pytest

from auditor.evidence.snapshot.file import CHANGES, check

FRAMES = [{"filename": "/home/user/train.py", "line": 7, "name": "step"}]


def whole():
    """What torch 2.14 writes, with each key that is read."""
    return {
        "segments": [
            {
                "device": 0,
                "address": 1 << 40,
                "total_size": 2 << 20,
                "stream": 0,
                "segment_type": "small",
                "is_expandable": False,
                "frames": FRAMES,
                "blocks": [
                    {
                        "address": 1 << 40,
                        "size": 512,
                        "requested_size": 400,
                        "state": "active_allocated",
                        "frames": FRAMES,
                    },
                    {"address": (1 << 40) + 512, "size": 2097152 - 512, "state": "inactive"},
                ],
            }
        ],
        "device_traces": [
            [
                {
                    "action": "alloc",
                    "addr": 1 << 40,
                    "size": 512,
                    "stream": 0,
                    "time_us": 1795368184008378,
                    "frames": FRAMES,
                },
                {"action": "oom", "device_free": 10, "size": 1 << 45, "stream": 0},
            ]
        ],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "release_lock_on_cudamalloc": False,
            "roundup_power2_divisions": {"1": 0},
        },
    }


def test_what_some_versions_left_out_passes():
    old = whole()
    for block in old["segments"][0]["blocks"]:
        for name in ("address", "requested_size", "frames"):
            block.pop(name, None)
    del old["allocator_settings"]
    check(old)


EVENT = ("device_traces", 0, 0)
SEGMENT = ("segments", 0)
BLOCK = (*SEGMENT, "blocks", 0)
WRONG = [
    *(
        (where, name, value)
        for where, name in (
            (EVENT, "addr"),
            (EVENT, "size"),
            (EVENT, "time_us"),
            (BLOCK, "size"),
            (BLOCK, "address"),
            (BLOCK, "requested_size"),
            (SEGMENT, "total_size"),
            (SEGMENT, "address"),
        )
        for value in (-1, 2**64, 10**400, 1.0, math.inf, math.nan, "12", None, [], True)
    ),
    *((EVENT, "action", value) for value in (None, 3, [])),
    *((BLOCK, "state", value) for value in (None, 3, [])),
    *((EVENT, "stream", value) for value in ("0", None, 1.5)),
    *((SEGMENT, "device", value) for value in ("0", -1, 0.0)),
    *(
        (where, "frames", value)
        for where in (EVENT, BLOCK, SEGMENT)
        for value in (
            3,
            "ab",
            [3],
            [{"filename": "a.py", "line": "7", "name": "f"}],
            [{"filename": "a.py", "line": 2**64, "name": "f"}],
            [{"filename": "a.py", "line": 7}],
        )
    ),
    (("allocator_settings",), "max_split_size", "many"),
    (("allocator_settings",), "roundup_power2_divisions", [1]),
    ((), "device_traces", [3]),
    ((), "segments", {"a": 1}),
]


@pytest.mark.parametrize(("where", "name", "value"), WRONG)
def test_what_torch_never_writes_is_refused(where, name, value):
    snapshot = copy.deepcopy(whole())
    place = snapshot
    for key in where:
        place = place[key]
    place[name] = value
    with pytest.raises(ValueError, match=r"\S"):
        check(snapshot)


@pytest.mark.parametrize("action", CHANGES)
def test_a_change_of_memory_has_an_address(action):
    snapshot = whole()
    snapshot["device_traces"][0].append({"action": action, "size": 512, "stream": 0})
    with pytest.raises(ValueError, match=f"{action} without an address"):
        check(snapshot)


def test_the_largest_address_passes():
    snapshot = whole()
    snapshot["device_traces"][0][0]["addr"] = 2**64 - 1
    check(snapshot)
