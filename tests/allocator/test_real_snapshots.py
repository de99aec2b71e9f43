"""Histories that torch's allocator wrote, replayed.

The simulation must ask the device for what the real allocator asked. Seven are of torch 2.14 on a
null device (``tests/recordings/SOURCES.md``), one with several streams, two with a retry. Thirteen
more are of other people's training runs (torch 2.0 to 2.11), where they lie beside the checkout.
"""

import pytest

from auditor.allocator import History, replay
from auditor.evidence.snapshot.file import load_plain
from tests.allocator.walks import gained
from tests.recorded_traces import BESIDE, SNAPSHOTS

OURS = """
    snap_empty_cache snap_graph_kept snap_growing snap_late_history snap_out_of_memory
    snap_train snap_two_streams
""".split()
_OF_OTHERS = """
    snap_counterfactual snap_cs336_2.7b_forward_compiled snap_cs336_attention_probe
    snap_cs336_ctx128_fullstep snap_cs336_ctx512_forward snap_cs336_fwd_graph_kept
    snap_cs336_infer_ctx1024 snap_cs336_train_ctx1024 snap_lora_ft_2024 snap_octree_nca_vram
    snap_octree_small snap_seg_churn_llama_2024 snap_tomi
""".split()
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
    assert gained(replayed.allocator.snapshot()) == gained(snapshot)
    assert (replayed.start_reserved, replayed.peak_reserved) == (
        truth.start_reserved,
        truth.peak_reserved,
    )
    assert replayed.retries == truth.retries
    stats = replayed.allocator.stats()
    for what, size in (("reserved", "total_size"), ("allocated", "allocated_size")):
        final = sum(segment[size] for segment in snapshot["segments"])
        assert stats[f"{what}_bytes.all.current"] == final
