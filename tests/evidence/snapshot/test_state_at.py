"""What lived at a moment: gaps between blocks, holders by line, words for how long they live."""

import pytest

from auditor.evidence.snapshot.state_at import (
    Holder,
    LiveBlock,
    Segment,
    SegmentBlock,
    Snapshot,
    State,
    _put_back,
    _take_out,
    placed,
)
from auditor.model import Site


def block(address, size, born=0, *, stays=False, frames=()):
    return LiveBlock(address, size, born, stays, frames)


@pytest.mark.parametrize(
    ("blocks", "segments", "largest"),
    [
        ([], {}, 0),
        ([], {100: 50}, 50),
        ([block(100, 50)], {100: 50}, 0),
        ([block(110, 10)], {100: 50}, 30),
        ([block(130, 20)], {100: 50}, 30),
        ([block(140, 10), block(100, 10)], {100: 50}, 30),
        ([block(100, 40), block(210, 30)], {200: 60, 100: 50}, 20),
        ([block(100, 50), block(200, 1)], {100: 50, 200: 8}, 7),
        ([block(120, 30), block(110, 15)], {100: 50}, 10),
        ([block(5, 1)], {}, 0),
    ],
)
def test_the_largest_free_stretch(blocks, segments, largest):
    assert State(tuple(blocks), segments).largest_free == largest


@pytest.mark.parametrize(
    ("held", "address", "size", "left"),
    [
        ({100: 50}, 100, 50, {}),
        ({100: 50}, 110, 10, {100: 10, 120: 30}),
        ({100: 50}, 100, 10, {110: 40}),
        ({100: 50}, 140, 10, {100: 40}),
        ({100: 50}, 140, 11, {100: 50}),
        ({100: 50}, 99, 5, {100: 50}),
        ({10: 5, 100: 50}, 110, 40, {10: 5, 100: 10}),
    ],
)
def test_pages_cut_out_and_put_back(held, address, size, left):
    now = dict(held)
    _take_out(now, address, size)
    assert now == left
    if now != held:
        _put_back(now, address, size)
        assert now == held


@pytest.mark.parametrize(
    ("older", "stays", "said"),
    [
        (90, 100, "from before the history"),
        (89, 90, "kept to the end"),
        (0, 89, "partly kept"),
        (0, 11, "partly kept"),
        (0, 10, "freed again"),
        (0, 0, "freed again"),
    ],
)
def test_how_long_blocks_live(older, stays, said):
    site = Site("train.py", 3, "step")
    assert Holder(site, 100, 2, (), older, stays).lifetime == said
    wanted = ("train.py:3 step", f"100 B in 2 blocks, {said}")
    assert Holder(site, 100, 2, (), older, stays).row == wanted
    untimed = Holder(site, 100, 1, (), older, stays, timed=False)
    assert (untimed.lifetime, untimed.row[1]) == ("", "100 B in 1 block")


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("train.py", "train.py:3 f"),
        ("b/train.py", "b/train.py:3 f"),
        ("/train.py", "/train.py:3 f"),
        ("/a/b/train.py", "b/train.py:3 f"),
    ],
)
def test_a_place_has_the_last_two_parts_of_its_path(file, said):
    assert placed(Site(file, 3, "f")) == said
    assert placed(Site(file, 3)) == said.removesuffix(" f")


def test_pins_are_told_to_the_line_of_the_largest_live_block():
    here, there = Site("a.py", 1), Site("a.py", 2)
    live = [SegmentBlock(n, live=True, site=site) for n, site in ((8, here), (9, there), (1, here))]
    free = SegmentBlock(20, live=False)
    mixed = Segment(38, (*live, free))
    own = Segment(29, (live[0], free, live[2]), device=1)
    whole, old = Segment(8, live[:1]), Segment(24, (SegmentBlock(4, live=True), free))
    grown = Segment(28, (live[0], free), expandable=True)
    table = Snapshot((own, mixed, whole, old, grown, Segment(20, (free,))))
    assert [(pin.site, pin.free_bytes, pin.live_bytes, pin.blocks) for pin in table.pins()] == [
        (here, 20, 9, 2),
        (there, 20, 9, 1),
    ]
    assert (table.untold_bytes, table.on(1).segments) == (20, (own,))
