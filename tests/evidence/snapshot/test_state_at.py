"""What lived at a moment: gaps between blocks, holders by line, words for how long they live."""

import pytest

from auditor.evidence.snapshot.state_at import (
    Holder,
    LiveBlock,
    State,
    _put_back,
    _take_out,
    by_line,
    placed,
)
from auditor.model import Site


def block(address, size, born=0, *, stays=False, frames=()):
    return LiveBlock(address, size, born, stays, frames)


class Lines:
    """Origins by the line that a frame is."""

    def site(self, frames):
        return Site("train.py", frames[0]) if frames else None

    def stack(self, frames):
        return tuple(f"line {line}" for line in frames)


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


def test_pages_put_back_alone():
    held = {100: 50}
    _put_back(held, 200, 10)
    assert held == {100: 50, 200: 10}


def test_the_last_two_parts_of_a_path():
    assert placed(Site("train.py", 3, "step")) == "train.py:3 step"
    assert placed(Site("src/train.py", 3)) == "src/train.py:3"
    assert placed(Site("/home/me/src/train.py", 3, "f")) == "src/train.py:3 f"


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
    ("older", "timed", "said"), [(1, True, "before"), (0, False, "before"), (0, True, "backward")]
)
def test_why_no_line_is_known(older, timed, said):
    assert said in Holder(None, 10, 1, (), older, 0, timed=timed).label


def test_holders_by_line_the_largest_first():
    blocks = [
        block(1, 10, frames=(3, 1)),
        block(2, 30, frames=(3, 2), stays=True),
        block(3, 5, -1, frames=(3,)),
        block(4, 20, frames=(7,)),
        block(5, 8, -1),
        block(6, 9, 0),
    ]
    three, seven, of_backward, before = by_line(blocks, Lines())
    assert (three.site.line, three.size, three.blocks) == (3, 45, 3)
    assert (three.older, three.stays, three.stack) == (5, 30, ("line 3", "line 2"))
    assert (seven.site.line, seven.size, seven.timed) == (7, 20, True)
    assert (of_backward.site, of_backward.size, of_backward.older) == (None, 9, 0)
    assert (before.site, before.size, before.older) == (None, 8, 8)
    assert [each.timed for each in by_line(blocks[:1], Lines(), timed=False)] == [False]
