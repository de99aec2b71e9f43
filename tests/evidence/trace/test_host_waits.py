"""Waits of the host in a trace, by place: per step, in words, and where times are no GPU's."""

from dataclasses import replace

import pytest

from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace, _cause, _untimed
from auditor.model import Site

CALL = "copy to host", "aten::to", "cudaMemcpyAsync", Site("train.py", 4, "step")
WAITED = {"backward": False, "asynchronous": False, "held_us": 800.0}
COPIED = {"copied": 6 * 2048, "slow_us": 40.0, "copying_us": 2.0, "pinned": "25 GB/s"}
PLACE = WaitPlace(*CALL, **WAITED, seen=frozenset({0, 2}), n=6, won_us=400.0, of=4, **COPIED)


@pytest.mark.parametrize(
    ("change", "speed", "amount"),
    [
        ({}, "6.14 GB/s", "2 KiB each at 6.14 GB/s"),
        ({"slow_us": 0.0}, "6.14 GB/s", "2 KiB each"),
        ({"copying_us": 0.0, "slow_us": 0.0}, "", "2 KiB each"),
        ({"copied": 0}, "", ""),
        ({"copied": -1}, "", ""),
        ({"copied": 1, "n": 1, "slow_us": 0.0}, "0.0005 GB/s", "1 B each"),
    ],
    ids=str,
)
def test_how_much_was_copied_and_how_fast(change, speed, amount):
    place = replace(PLACE, **change)
    assert (place.speed, place.amount) == (speed, amount)


def test_facts():
    assert PLACE.facts == (
        ("copied", "2 KiB each at 6.14 GB/s"),
        ("pinned memory reaches", "25 GB/s: 10 us per step less"),
        ("operator", "aten::to"),
        ("runtime call", "cudaMemcpyAsync"),
        ("seen on", "2 of 4 steps of the trace"),
        ("host held", "200 us per step"),
        ("device idle because of it", "100 us per step"),
        ("pass", "forward"),
    )
    bare = _untimed(replace(PLACE, copied=0, operator="", backward=True))
    assert bare.facts == (
        ("operator", "none: the program's own call"),
        ("runtime call", "cudaMemcpyAsync"),
        ("seen on", "2 of 4 steps of the trace"),
        ("pass", "backward"),
    )
    assert (bare.held_us, bare.won_us, bare.slow_us, bare.copying_us) == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "operator", "cause"),
    [
        ("item", "aten::item", "scalar"),
        ("item", "aten::is_nonzero", "branch"),
        ("item", "aten::equal", "branch"),
        ("item", "aten::allclose", "branch"),
        ("nonzero", "aten::is_nonzero", "shape"),
        ("copy on device", "", "copy"),
        ("explicit", "", "explicit"),
        ("what else", "aten::equal", "other"),
    ],
)
def test_causes(name, operator, cause):
    assert _cause(name, operator) == cause


def test_averages_of_a_step_and_places_by_their_price():
    assert (PLACE.per_step, PLACE.won_us_per_step, PLACE.lost_us_per_step) == (1.5, 100.0, 110.0)
    dear, other = replace(PLACE, won_us=900.0), replace(PLACE, cause="scalar")
    late = replace(PLACE, asynchronous=True)
    table = TraceWaits(places=(PLACE, dear, other, late))
    assert table.of("copy to host") == [dear, PLACE] and table.of("scalar", "shape") == [other]
    assert table.of("copy to host", asynchronous=True) == [late]
