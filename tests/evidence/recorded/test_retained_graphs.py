"""Holders of graphs: lasting, growing, keeping what is old."""

import pytest

from auditor.evidence.recorded.retained_graphs import (
    NODE_CAP,
    Root,
    each_line_once,
    grows,
)
from auditor.model import Site
from tests.rules.asking import holding

SITE = Site("trainer.py", 4)


def root(*, number=None, name="self.losses[*]", site=SITE, first=0, **columns):
    """A root with these values step by step."""
    length = len(next(iter(columns.values())))
    holdings = tuple(
        holding(first + n, **{key: values[n] for key, values in columns.items()})
        for n in range(length)
    )
    return Root(name, site, holdings, length if number is None else number)


@pytest.mark.parametrize(
    ("values", "share", "said"),
    [
        ([1, 2, 3], 1.0, True),
        ([1, 2], 1.0, False),
        ([1, 2, 2], 1.0, False),
        ([1, 2, 2], 0.5, True),
        ([3, 4, 5, 3], 0.5, False),  # ends where it began
        ([0, 10, 8, 12], 0.5, True),  # a fall of less than a fifth of the peak
        ([0, 10, 7, 12], 0.5, False),
        ([0, 5, 4, 5], 0.5, True),  # exactly a fifth
        ([2, 2, 2], 0.0, False),
        ([3, 2, 1], 0.0, False),
    ],
    ids=str,
)
def test_growth_of_a_series(values, share, said):
    assert grows(values, share) is said


def test_words_for_a_report():
    two = root(tensors=[1, 4], nodes=[1000, 2000], oldest=[0, 3], held_bytes=[1024, 4096])
    assert two.facts == (
        ("tensors with a graph", "1 at first, 4 at the end"),
        ("graph", "1,000 autograd nodes, then 2,000"),
        ("oldest", "3 steps old"),
        ("saved for backward", "1 KiB at first, 4 KiB at the end"),
    )
    still = root(tensors=[2, 2], nodes=[5, 5], oldest=[0, 1], held_bytes=[1024, 1024])
    assert (still.facts[0][1], still.facts[-1][1]) == ("2", "1 KiB")
    many = root(tensors=[1, 4], nodes=[NODE_CAP, 5], held_bytes=[None, 4096])
    assert many.length == "more than 20,000 autograd nodes"
    assert (many.nodes, many.held_bytes, len(many.facts)) == ((5,), (), 3)
    assert Root("x", None, (), 0).oldest == 0


@pytest.mark.parametrize(
    ("number", "share", "lasts"), [(4, 1.0, True), (8, 0.5, True), (8, 0.51, False)]
)
def test_lasting_is_a_share_of_the_steps_without_a_gap(number, share, lasts):
    assert root(number=number, first=2, tensors=[1] * 4).lasts(share) is lasts


def test_a_gap_ends_what_lasts():
    gap = Root("x", SITE, (holding(0), holding(1), holding(3)), 3)
    assert not gap.lasts(0.5) and not gap.tensors_grow(0.5) and not gap.graph_grows(0.5)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, True),
        ({"nodes": [NODE_CAP - 1] * 5}, False),
        ({"carried": [0] * 5}, False),
        ({"oldest": [1] * 5}, False),
        ({"carried": [0, 0, 0, 1, 1]}, False),
    ],
    ids=str,
)
def test_a_sum_whose_graph_is_too_long_to_count(change, said):
    columns = {"nodes": [NODE_CAP] * 5, "carried": [1] * 5, "oldest": [1, 2, 3, 4, 5], **change}
    assert root(**columns).graph_grows(0.8) is said


@pytest.mark.parametrize(
    ("held", "growth"),
    [
        ([10, 20, 30], 10),
        ([10, 20], None),
        ([10, 10, 10], None),
        ([30, 20, 10], None),
        ([0, 1, 2, 99], 1),
        ([10, None, 30], None),
    ],
    ids=str,
)
def test_bytes_per_step(held, growth):
    assert root(held_bytes=held).bytes_per_step() == growth


@pytest.mark.parametrize(
    ("carried", "oldest", "tensors", "said"),
    [
        ([0, 1, 1, 1], [0, 2, 2, 3], [1, 2, 1, 1], True),
        ([0, 0, 1, 1], [0, 2, 2, 3], [1, 2, 1, 1], False),  # half of the steps are not most
        ([0, 1, 1, 1], [0, 1, 2, 3], [1, 2, 1, 1], False),
        ([0, 1, 1, 1], [0, 2, 2, 3], [1, 1, 1, 1], False),  # never replaced
        ([0, 1, 1, 1], [0, 2, 2, 3], [9, 1, 1, 1], False),  # nor by what was there at the start
    ],
    ids=str,
)
def test_keeping_what_is_old(carried, oldest, tensors, said):
    assert root(carried=carried, oldest=oldest, tensors=tensors).keeps_old(2) is said


@pytest.mark.parametrize("held", [0, 64])
def test_a_variable_that_some_steps_set_anew_keeps_old_what_no_backward_has_freed(held):
    """The error of a generator while its discriminator is trained."""
    seen = root(
        carried=[1, 1, 1, 1, 0, 1],
        oldest=[2, 3, 4, 5, 0, 1],
        tensors=[1] * 6,
        held_bytes=[held] * 6,
    )
    assert seen.keeps_old(2) is bool(held)


UP = list(range(1, 13))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"held_bytes": [*UP, 1, 2]}, True),
        ({"held_bytes": [*UP[:11], 1, 2]}, False),  # grew on eleven
        ({"held_bytes": [9, 10, *UP]}, True),  # emptied first
        ({"held_bytes": [*UP, *UP[:6], 1]}, False),  # emptied twice: it is kept short
        ({"held_bytes": [*UP, *range(13, 15)]}, False),  # never emptied: it just grows
        ({"tensors": [*UP, 1, 2]}, True),
        ({"oldest": [*UP, 0, 1], "nodes": [NODE_CAP] * 12 + [9, 9]}, True),  # too long to count
        ({"oldest": [*UP, 0, 1], "nodes": [9] * 14}, False),  # one graph, which gets older
        ({"held_bytes": [*UP[:5], 5, 5, *UP[5:], 1, 2]}, False),  # rests on two of 13
        ({"held_bytes": [*UP, 1, 2], "walked": [False] * 13 + [True]}, False),
    ],
    ids=str,
)
def test_a_holder_of_an_epoch_is_emptied_once_and_grows_between(columns, said):
    assert root(**columns).grew_until_emptied(12, 0.9) is said


def test_a_holder_that_was_not_there_all_the_time_is_of_no_epoch():
    made = root(held_bytes=[*UP, 1, 2], number=20)
    assert not made.grew_until_emptied(12, 0.9)


def test_a_line_is_told_once():
    other = root(tensors=[1], site=Site("trainer.py", 5))
    bare = [root(tensors=[1], name=name, site=None) for name in ("a", "a", "b")]
    roots = [root(tensors=[1]), other, root(tensors=[2], name="x"), *bare]
    assert list(each_line_once(roots)) == [roots[0], other, bare[0], bare[2]]
