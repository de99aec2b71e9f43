"""Recorded histories, replayed: as they were, and otherwise what can be worked out by hand."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.allocator import AllocatorSettings, CachingAllocator, History, OutOfMemory, replay
from tests.allocator.walks import CONFIGS, MIB, Walk, cards, check, gained, programs

EXPANDABLE = AllocatorSettings.parse("expandable_segments:True")
DEFAULT = AllocatorSettings.parse("")
BLOCK = ("malloc", 3 * MIB, 0)
TWO_STREAMS = [BLOCK, ("record_stream", 0, 1), ("free", 0, 0), BLOCK, ("stream_done", 0, 1)]


def starts_late(history):
    return any(segment.live for segment in history.start)


def recorded(config, card, program, **options):
    walk = Walk(config, card, **options)
    for step in program:
        with contextlib.suppress(OutOfMemory):
            walk.step(*step)
    return walk.allocator


def layout(allocator):
    found = []
    for segment in allocator.snapshot()["segments"]:
        blocks = [(block["size"], block["state"]) for block in segment["blocks"]]
        found.append((segment["segment_type"], segment["stream"], blocks))
    return sorted(found)


def final(replayed, what="reserved"):
    return replayed.allocator.stats()[f"{what}_bytes.all.current"]


def agree(history, replayed, allocator):
    truth = history.recorded
    assert gained(replayed.allocator.snapshot()) == gained(allocator.snapshot())
    assert replayed.start_reserved == truth.start_reserved
    assert replayed.peak_reserved == truth.peak_reserved
    for what in ("reserved", "allocated"):
        assert final(replayed, what) == allocator.stats()[f"{what}_bytes.all.current"]


@pytest.mark.parametrize("config", CONFIGS)
@given(program=programs)
def test_a_history_replayed_as_it_was_gives_what_was_recorded(config, program):
    allocator = recorded(config, 1 << 50, [*program, *TWO_STREAMS])
    history = History.from_snapshot(allocator.snapshot())
    assert not starts_late(history) and history.recorded.start_reserved == 0
    replayed = replay(history, fresh=True)
    agree(history, replayed, allocator)
    assert layout(replayed.allocator) == layout(allocator)
    assert replayed.shortage is None and replayed.retries == 0


@pytest.mark.parametrize("config", ["", "roundup_power2_divisions:4"])
@given(card=cards, program=programs)
def test_retries_and_errors_come_again_on_the_same_card(config, card, program):
    """A retry waits for other streams, and a history does not tell that frees ended in it."""
    allocator = recorded(config, card, [step for step in program if step[0] != "free_begins"])
    history, stats = History.from_snapshot(allocator.snapshot()), allocator.stats()
    replayed = replay(history, total_bytes=card)
    agree(history, replayed, allocator)
    assert (replayed.retries, replayed.ooms) == (stats["num_alloc_retries"], stats["num_ooms"])
    assert replayed.shortage is None


@given(
    program=st.lists(
        st.tuples(st.sampled_from(["malloc", "free", "malloc"]), st.integers(1, MIB), st.just(0)),
        max_size=150,
    )
)
def test_a_ring_that_starts_late_is_replayed_from_what_was_held_then(program):
    allocator = recorded("", 1 << 50, program, history_limit=60)
    history = History.from_snapshot(allocator.snapshot())
    replayed = replay(history)
    agree(history, replayed, allocator)
    assert layout(replayed.allocator) == layout(allocator)


@pytest.mark.parametrize("config", ["expandable_segments:True", "max_split_size_mb:20"])
@given(program=programs, card=st.sampled_from([1, 4, 1000]))
def test_segments_are_taken_over_under_other_settings(config, program, card):
    """On a card with no room beyond what was held then, with little, with much."""
    history = History.from_snapshot(recorded("", 1 << 50, program, history_limit=60).snapshot())
    total = history.recorded.start_reserved + card * MIB
    replayed = replay(history, AllocatorSettings.parse(config), fresh=False, total_bytes=total)
    check(replayed.allocator)
    assert replayed.start_reserved == history.recorded.start_reserved


def test_a_segment_that_was_split_before_is_not_given_back_in_part():
    allocator = CachingAllocator(1 << 40, history_limit=4)
    first, second = allocator.malloc(100 * MIB), allocator.malloc(80 * MIB)
    allocator.free(first)
    held = allocator.malloc(30 * MIB)
    allocator.free(second)
    allocator.malloc(90 * MIB)
    allocator.free(held)
    history = History.from_snapshot(allocator.snapshot())
    settings = AllocatorSettings.parse("max_split_size_mb:20")
    replayed = replay(history, settings, fresh=False, total_bytes=190 * MIB)
    check(replayed.allocator)
    assert (replayed.start_reserved, final(replayed)) == (180 * MIB, 190 * MIB)
    assert replayed.retries == 1


def test_what_was_live_before_a_ring_is_allocated_anew_under_other_settings():
    allocator = CachingAllocator(1 << 40, history_limit=4)
    held = [allocator.malloc(12 * MIB, now_us=0) for _ in range(4)]
    for address in held[:2]:
        allocator.free(address, 1)
    history = History.from_snapshot(allocator.snapshot())
    assert starts_late(history)
    assert [block.requested for segment in history.start for block in segment.live] == [
        12 * MIB
    ] * 4
    assert replay(history).start_reserved == 48 * MIB
    anew = replay(history, EXPANDABLE)
    assert anew.start_reserved == 60 * MIB, "four of 12 MiB in pages of 20 MiB"
    assert (anew.peak_allocated, final(anew, "allocated")) == (48 * MIB, 24 * MIB)


def test_a_gap_that_is_no_free_block_belongs_to_the_block_before_it():
    """Of 20 MiB, 19.5: half a MiB is not split off in the large pool."""
    allocator = CachingAllocator(1 << 40, history_limit=2)
    allocator.free(allocator.malloc(19 * MIB + MIB // 2))
    (segment,) = History.from_snapshot(allocator.snapshot()).start
    assert [(block.size, block.requested) for block in segment.live] == [
        (20 * MIB, 19 * MIB + MIB // 2)
    ]


def test_a_late_history_of_expandable_segments_names_its_live_blocks():
    allocator = CachingAllocator(1 << 40, settings=EXPANDABLE, history_limit=6)
    held = [allocator.malloc(30 * MIB, now_us=0) for _ in range(3)]
    for address in held[1:]:
        allocator.free(address, 1)
    allocator.empty_cache(2)
    history = History.from_snapshot(allocator.snapshot())
    assert history.expandable and starts_late(history)
    replayed = replay(history)
    assert (replayed.peak_allocated, final(replayed, "allocated"), final(replayed)) == (
        90 * MIB,
        30 * MIB,
        40 * MIB,
    )
    with pytest.raises(ValueError, match="afresh"):
        replay(history, fresh=False)


def fragmented(card):
    """2 MiB keep a segment of 500 MiB: the next 600 MiB do not fit on a card of 1 GiB."""
    allocator = CachingAllocator(card)
    frames = [{"filename": "train.py", "line": 1, "name": "step"}]
    allocator.free(allocator.malloc(500 * MIB, 0, frames, 0), 1, frames)
    allocator.malloc(2 * MIB, 0, frames, 2)
    with contextlib.suppress(OutOfMemory):
        allocator.malloc(600 * MIB, 0, frames, 3)
    return History.from_snapshot(allocator.snapshot())


def test_an_error_by_fragmentation_is_gone_with_expandable_segments():
    """500 MiB mapped, 2 taken; 600 more end at 602 MiB: 31 pages of 20 MiB, 620 MiB."""
    history = fragmented(1024 * MIB)
    as_it_was, other = (
        replay(history, each, total_bytes=1024 * MIB) for each in (DEFAULT, EXPANDABLE)
    )
    assert (as_it_was.ooms, as_it_was.peak_reserved) == (1, 500 * MIB)
    assert (other.ooms, other.retries, other.peak_reserved) == (0, 0, 620 * MIB)
    assert replay(history, total_bytes=1100 * MIB).ooms == 0, "a larger card helps as well"


def test_the_card_is_bounded_by_what_it_refused():
    """Held 500 MiB when 600 were refused: less than 1100 MiB. Nothing refused: unknown."""
    allocator = CachingAllocator(1000 * MIB)
    frames = [{"filename": "train.py", "line": 1, "name": "step"}]
    allocator.free(allocator.malloc(500 * MIB, 0, frames, 0), 1)
    allocator.malloc(600 * MIB, 0, [{**frames[0], "line": 2}], 2)
    history = History.from_snapshot(allocator.snapshot())
    truth = history.recorded
    as_it_was = replay(history)  # on a card of no known size the cache is flushed where it was
    assert (as_it_was.retries, as_it_was.peak_reserved, final(as_it_was)) == (
        1,
        600 * MIB,
        600 * MIB,
    )
    assert (truth.card_below, truth.peak_reserved, truth.retries) == (1100 * MIB, 600 * MIB, 1)
    assert fragmented(1024 * MIB).recorded.card_below == 1100 * MIB, (
        "nothing came free, and so nothing came after it"
    )
    assert fragmented(4096 * MIB).recorded.card_below is None


def test_without_its_calls_of_empty_cache_the_program_asks_the_device_once():
    allocator = CachingAllocator(1 << 40)
    for _ in range(5):
        allocator.free(allocator.malloc(100 * MIB))
        allocator.empty_cache(
            frames=[{"filename": "torch/cuda/memory.py", "line": 1, "name": "empty_cache"}]
        )
    history = History.from_snapshot(allocator.snapshot())
    assert history.unknown_flushes == 0
    assert len(gained(replay(history).allocator.snapshot())) == 5
    assert len(gained(replay(history, empty_caches=False).allocator.snapshot())) == 1


@pytest.mark.parametrize(
    "data",
    [
        {},
        [],
        {"segments": []},
        {"segments": [], "device_traces": []},
        {"segments": [{}], "device_traces": [[]]},
        {"segments": [], "device_traces": [[{"action": "alloc"}]]},
        {"segments": [], "device_traces": [[3]]},
    ],
)
def test_other_data_is_refused_in_one_sentence(data):
    with pytest.raises(ValueError, match="no readable history of device 0"):
        History.from_snapshot(data)
