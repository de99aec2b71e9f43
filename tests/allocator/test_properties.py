"""What holds of the allocator after any sequence of calls, under any settings."""

import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.allocator import OutOfMemory
from tests.allocator.walks import CONFIGS, MIB, Walk, cards, check, programs


def run(config, card, program, *, checked=True, **options):
    walk = Walk(config, card, **options)
    for step in program:
        with contextlib.suppress(OutOfMemory):
            walk.step(*step)
        if checked:
            check(walk.allocator)
    return walk


@pytest.mark.parametrize("config", CONFIGS)
@given(card=cards, program=programs)
def test_blocks_tile_segments_and_the_books_agree(config, card, program):
    run(config, card, program)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_long_walk_on_a_card_that_is_nearly_full(config):
    """Retries, errors, oversize blocks given back, pages unmapped and mapped again."""
    chance, walk, failed = random.Random(config), Walk(config, 160 * MIB), 0
    for number in range(1500):
        wanted = int(2 ** chance.uniform(6, 25.5))
        doing = chance.choice(
            ["malloc"] * 6
            + ["free"] * 6
            + ["record_stream", "stream_done"]
            + ["empty_cache"] * (number % 20 == 0)
        )
        try:
            walk.step(doing, wanted, chance.choice((0, 0, 0, 1)))
        except OutOfMemory:
            failed += 1
            walk.step("free", number, 0)
        if number % 10 == 0:
            check(walk.allocator)
    stats = walk.allocator.stats()
    assert failed == stats["num_ooms"] > 0
    assert stats["num_alloc_retries"] >= failed
    assert stats["num_device_free"] > 0


@pytest.mark.parametrize("config", CONFIGS)
@given(card=cards, program=programs)
def test_all_memory_comes_back_once_everything_is_freed(config, card, program):
    walk = run(config, card, program, checked=False)
    for address in walk.live:
        walk.allocator.free(address, 0)
    walk.allocator.empty_cache(0)
    check(walk.allocator)
    assert walk.allocator.stats()["reserved_bytes.all.current"] == 0
    assert walk.allocator.device_free == card
    assert walk.allocator.snapshot()["segments"] == []


@given(config=st.sampled_from(CONFIGS), card=cards, program=programs)
def test_the_history_tells_what_happened(config, card, program):
    walk = run(config, card, program, checked=False)
    rows = walk.allocator.snapshot()["device_traces"][0]
    stats = walk.allocator.stats()

    def total(*actions):
        return sum(row["size"] for row in rows if row["action"] in actions)

    assert total("segment_alloc", "segment_map") == stats["reserved_bytes.all.allocated"]
    assert total("segment_free", "segment_unmap") == stats["reserved_bytes.all.freed"]
    assert total("alloc") == stats["requested_bytes.all.allocated"]
    assert total("free_completed") == stats["requested_bytes.all.freed"]
    assert sum(row["action"] == "oom" for row in rows) == stats["num_ooms"]
    assert all(("device_free" in row) == (row["action"] == "oom") for row in rows)


@given(config=st.sampled_from(CONFIGS), card=cards, program=programs)
def test_torch_reads_our_snapshots(config, card, program):
    from torch.cuda import _memory_viz

    snapshot = run(config, card, program, checked=False, device=1).allocator.snapshot()
    assert _memory_viz.segsum(snapshot).startswith("Summary of segments")
    assert isinstance(_memory_viz.trace(snapshot), str)
    for read in (
        _memory_viz.memory,
        _memory_viz.segments,
    ):  # the program that draws them would be fetched from the network
        assert isinstance(read(snapshot, format_flamegraph=lambda lines: lines), str)
    for plot in (_memory_viz.trace_plot, _memory_viz.segment_plot):
        assert "<script" in plot(snapshot)
