"""Loaders of several ranks, and how many batches an epoch of each has."""

import pytest
from auditor.rules.dist.rank_batches import LoaderLengths


def loader(number=0, length=4, made_at=0, at=1):
    return {"loader": number, "made_at": made_at, "at": at, "length": length}


@pytest.fixture
def ranks(seen):
    """The table of rank 0, from the loaders of each rank."""

    def table(*loaders):
        made = []
        for rank, rows in enumerate(loaders):
            manifest = {"rank": rank}
            made.append(
                seen(inside=f"r{rank}", sites=[3, 5, 7, 9], manifest=manifest, loaders=rows)
            )
        made[0].recording.members = tuple(one.recording for one in made)
        return made[0].get(LoaderLengths)

    return table


def test_equal_ones_are_even(ranks):
    (one,) = ranks([loader()], [loader()]).each
    assert not one.uneven


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([loader()], []),
        ([loader()], [loader(made_at=2)]),
        ([loader()], [loader(length=None)]),
        ([loader(made_at=None)], [loader(made_at=None)]),
        ([loader(), loader(1, length=6)], [loader()]),
        ([loader(), loader(1, at=3)], [loader()]),
        ([loader(at=None)], [loader(at=None)]),
    ],
)
def test_what_cannot_be_compared_is_left_out(ranks, first, second):
    assert ranks(first, second).each == ()


def test_recordings_that_name_one_rank_twice_are_compared_all_the_same(seen):
    made = [
        seen(inside=f"r{n}", sites=[3, 5], manifest={"rank": 0}, loaders=[loader(length=n)])
        for n in (4, 5)
    ]
    made[0].recording.members = tuple(one.recording for one in made)
    (one,) = made[0].get(LoaderLengths).each
    assert [n for _, n in one.batches] == [4, 5]
