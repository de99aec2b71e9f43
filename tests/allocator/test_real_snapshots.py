"""Real histories, replayed as they were: the simulation must ask the device for what the real allocator asked.

The snapshots are open ones of other people's training runs (torch 2.0 to 2.11; one was made with several streams, one with
a retry). They lie beside the checkout; ``test_replay.py`` has the same checks on histories of our own.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.allocator import History, replay
from auditor.allocator.ledger import Ledger
from auditor.evidence.unpickle import load_plain

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces" / "data"
WITH_HISTORY = (
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


@pytest.fixture(params=WITH_HISTORY)
def snapshot(request):
    if not TRACES.is_dir():
        pytest.skip("the open snapshots are not here")
    return load_plain(next((TRACES / request.param).iterdir()))


def test_the_device_is_asked_for_the_same_segments(snapshot):
    history = History.from_snapshot(snapshot)
    replayed = replay(history)
    truth = history.recorded
    assert replayed.segment_allocs == truth.segment_allocs
    assert (replayed.start_reserved, replayed.peak_reserved) == (truth.start_reserved, truth.peak_reserved)
    assert (replayed.final_reserved, replayed.retries) == (truth.final_reserved, truth.retries)
    allocated = sum(segment["allocated_size"] for segment in snapshot["segments"])
    assert replayed.final_allocated == allocated


def test_on_the_devices_own_addresses_each_block_lies_where_it_lay(snapshot, monkeypatch):
    """Which of two equal free blocks is taken depends on addresses; given those of cudaMalloc nothing is left open."""
    trace = next(trace for trace in snapshot["device_traces"] if trace)
    addresses = iter([event["addr"] for event in trace if event["action"] == "segment_alloc"])
    monkeypatch.setattr(Ledger, "address_range", lambda self, size: next(addresses))
    replayed = replay(History.from_snapshot(snapshot))
    placed = [entry.address for entry in replayed.allocator.history if entry.action == "alloc"]
    assert placed == [event["addr"] for event in trace if event["action"] == "alloc"]
    assert blocks(replayed.allocator.snapshot()) == blocks(snapshot)


def blocks(snapshot):
    found = set()
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            found.add((address, block["size"], block["state"]))
            address += block["size"]
    return found
