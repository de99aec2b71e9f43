"""The segment map: every byte drawn once, rows of a power of two, small pieces joined."""

from __future__ import annotations

from auditor.evidence.snapshot.by_line import REST
from auditor.evidence.snapshot.charts import EDGES, segment_map
from auditor.model.charts import Tone

TONES = {"a": Tone("a", 1), "b": Tone("b", 2)}


def segment(address, *blocks, total=None):
    made = [
        {
            "size": size,
            "state": "inactive" if whose == "free" else "active_allocated",
            "whose": whose,
        }
        for size, whose in blocks
    ]
    room = sum(size for size, _ in blocks) if total is None else total
    return {"address": address, "total_size": room, "blocks": made}


def drawn(*segments):
    return segment_map(segments, 2, TONES, lambda _, block: block["whose"], note="A note.")


def bars(chart):
    return [
        (each.lane, each.start, each.length, chart.tones[each.tone].name, each.label)
        for each in chart.bars
    ]


def test_nothing_reserved_is_no_map():
    assert drawn() is None


def test_blocks_in_rows_the_largest_segment_first():
    chart = drawn(segment(0, (1000, "a"), (500, "free")), segment(9, (8000, "b"), (2500, "c")))
    # 12,000 bytes in at most 16 rows of a power of two: rows of 1024
    assert chart.lanes == tuple(str(1024 * n) for n in range(12))
    assert (chart.title.split(",")[0], chart.total) == ("Segments of cuda:2", 4)
    assert chart.note == "A note. 500 B of it are free."
    assert [tone.name for tone in chart.tones] == ["free", "a", "b", REST]
    assert sum(length for *_, length, _, _ in bars(chart)) == 12_000
    assert bars(chart)[0] == (0, 0.0, 1024.0, "b", "segment 1 of 2")
    assert bars(chart)[7:9] == [
        (7, 0.0, 832.0, "b", "segment 1 of 2"),
        (7, 832.0, 192.0, REST, "segment 1 of 2"),
    ]
    assert bars(chart)[-1] == (11, 236.0, 500.0, "free", "segment 2 of 2")
    assert chart.edges == ((0, 0.0), (10, 260.0))
    unused = drawn(segment(0, (1024, "a")))
    assert [tone.name for tone in unused.tones] == ["free", "a"]


def test_a_row_more_where_the_last_is_begun():
    assert len(drawn(segment(0, (16 * 1024, "a"))).lanes) == 16
    assert len(drawn(segment(0, (16 * 1024 + 1, "a"))).lanes) == 9
    assert drawn(segment(0, (1, "a"))).lanes == ("0",)


def test_a_damaged_block_ends_with_its_segment():
    chart = drawn(segment(0, (700, "a"), (700, "b"), total=1000), segment(1, (24, "free")))
    assert [length for _, _, length, *_ in bars(chart)] == [64.0] * 10 + [60.0, 4.0] + [
        64.0
    ] * 4 + [
        40.0,
        24.0,
    ]


def test_pieces_too_small_to_be_seen_are_joined_under_the_tone_of_most():
    """Rows of 65,536 bytes: what is smaller than 262 bytes is joined."""
    small = [(100, "a"), (90, "free"), (71, "a"), (1, "free"), (262, "b"), (261, "a"), (262, "b")]
    rest = 16 * 65_536 - sum(size for size, _ in small)
    found = bars(drawn(segment(0, *small, (rest, "b"))))
    assert found[:4] == [
        (0, 0.0, 262.0, "a", "4 small pieces, 35% free"),
        (0, 262.0, 262.0, "b", "segment 1 of 1"),
        (0, 524.0, 261.0, "a", "segment 1 of 1"),
        (0, 785.0, 262.0, "b", "segment 1 of 1"),
    ]


def test_small_pieces_of_two_rows_stay_apart():
    row, late = 65_536, [(50, "a"), (60, "free"), (70, "b"), (80, "b")]
    first = row - 110
    found = bars(drawn(segment(0, (first, "b"), *late, (15 * row - 150, "b"))))
    assert [each[:3] for each in found[1:3]] == [(0, float(first), 110.0), (1, 0.0, 150.0)]
    assert [each[3] for each in found[1:3]] == ["free", "b"]


def test_edges_are_told_apart_and_limited():
    close = drawn(*(segment(n, (11, "a")) for n in range(100)))  # rows of 128, apart by one byte
    assert len(close.edges) == 100
    tiny = drawn(*(segment(n, (100, "a")) for n in range(20_000)))  # rows of 131,072
    assert tiny.edges[:3] == ((0, 0.0), (0, 1700.0), (0, 3400.0))
    assert len(tiny.edges) == EDGES
