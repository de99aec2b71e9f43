"""Histories that torch's allocator wrote, replayed.

The simulation must ask the device for what the real allocator asked. Seven are of torch 2.14 on a
null device (``tests/recordings/SOURCES.md``), one with several streams, two with a retry. Thirteen
more are of other people's training runs (torch 2.0 to 2.11), where they lie beside the checkout.
"""

from itertools import count

import pytest

from auditor.allocator import History, replay
from auditor.allocator.ledger import Ledger
from auditor.evidence.snapshot.file import load_plain
from tests.recorded_traces import BESIDE, SNAPSHOTS

OURS = (
    "snap_empty_cache",
    "snap_graph_kept",
    "snap_growing",
    "snap_late_history",
    "snap_out_of_memory",
    "snap_train",
    "snap_two_streams",
)
FROM_THE_START = tuple(name for name in OURS if name != "snap_late_history")
_OF_OTHERS = (
    "snap_counterfactual",
    "snap_cs336_2.7b_forward_compiled",
    "snap_cs336_attention_probe",
    "snap_cs336_ctx128_fullstep",
    "snap_cs336_ctx512_forward",
    "snap_cs336_fwd_graph_kept",
    "snap_cs336_infer_ctx1024",
    "snap_cs336_train_ctx1024",
    "snap_lora_ft_2024",
    "snap_octree_nca_vram",
    "snap_octree_small",
    "snap_seg_churn_llama_2024",
    "snap_tomi",
)
OF_OTHERS = _OF_OTHERS if BESIDE.is_dir() else ()


def loaded(name):
    (recorded,) = [one for key, one in SNAPSHOTS.items() if key.startswith(f"{name}/")]
    return load_plain(recorded.path)


@pytest.mark.parametrize("name", [*OURS, *OF_OTHERS])
def test_the_device_is_asked_for_the_same_segments(name):
    snapshot = loaded(name)
    history = History.from_snapshot(snapshot)
    replayed = replay(history)
    truth = history.recorded
    assert replayed.segment_allocs == truth.segment_allocs
    assert (replayed.start_reserved, replayed.peak_reserved) == (
        truth.start_reserved,
        truth.peak_reserved,
    )
    assert (replayed.final_reserved, replayed.retries) == (truth.final_reserved, truth.retries)
    allocated = sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert replayed.final_allocated == allocated


@pytest.mark.parametrize("name", OF_OTHERS)
def test_on_the_devices_own_addresses_each_block_lies_where_it_lay(name, monkeypatch):
    """Which of two equal free blocks is taken depends on addresses; given those of cudaMalloc
    nothing is left open.
    """
    snapshot = loaded(name)
    trace = next(trace for trace in snapshot["device_traces"] if trace)
    addresses = iter([event["addr"] for event in trace if event["action"] == "segment_alloc"])
    monkeypatch.setattr(Ledger, "address_range", lambda self, size: next(addresses))
    replayed = replay(History.from_snapshot(snapshot))
    placed = [entry.address for entry in replayed.allocator.history if entry.action == "alloc"]
    assert placed == [event["addr"] for event in trace if event["action"] == "alloc"]
    assert blocks(replayed.allocator.snapshot()) == blocks(snapshot)


@pytest.mark.parametrize("name", FROM_THE_START)
def test_each_block_lies_in_the_segment_and_at_the_offset_where_it_lay(name):
    """Of two equal free blocks torch 2.14 takes that of the older segment, whatever its address."""
    snapshot = loaded(name)
    trace = next(trace for trace in snapshot["device_traces"] if trace)
    replayed = replay(History.from_snapshot(snapshot)).allocator.history
    real = places((event["action"], event.get("addr"), event["size"]) for event in trace)
    assert len(real) > 100
    assert places((entry.action, entry.address, entry.size) for entry in replayed) == real


def places(history):
    """(number of the segment, offset in it) of each allocation; segments are counted as they are
    allocated.
    """
    segments, found, numbers = {}, [], count()
    for action, address, size in history:
        if action == "segment_alloc":
            segments[address] = (next(numbers), size)
        elif action == "segment_free":
            del segments[address]
        elif action == "alloc":
            (start,) = [
                start
                for start, (_, length) in segments.items()
                if start <= address < start + length
            ]
            found.append((segments[start][0], address - start))
    return found


def blocks(snapshot):
    found = set()
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            found.add((address, block["size"], block["state"]))
            address += block["size"]
    return found
