"""Delicate operators: what their rows mean, and when an epsilon vanishes."""

import math

import pytest
import torch

from auditor.evidence.recorded.amp import LARGEST, SMALLEST, OpRanges, facts_of, vanishes
from auditor.model import Site
from tests.rules.asking import delicate

SITE = Site("trainer.py", 1)


@pytest.mark.parametrize("dtype", SMALLEST)
def test_smallest_and_largest_are_those_of_torch(dtype):
    info = torch.finfo(getattr(torch, dtype))
    assert SMALLEST[dtype] == math.ldexp(1.0, round(math.log2(info.tiny * info.eps)))
    assert LARGEST[dtype] == pytest.approx(info.max, rel=1e-5)


@pytest.mark.parametrize(
    ("scalar", "dtype", "gone"),
    [
        (2.0**-25, "float16", True),
        (2.1**-25, "float16", True),
        (1.01 * 2.0**-25, "float16", False),
        (2.0**-150, "float32", True),
        (2.0**-149, "float32", False),
        (1e-30, "unknown", False),
        (0.0, "unknown", True),
    ],
)
def test_an_epsilon_vanishes_up_to_half_of_the_smallest_number(scalar, dtype, gone):
    assert vanishes(delicate(SITE, "epsilon", "add", dtype, scalar=scalar)) is gone


def test_no_pass_no_division():
    call = delicate(SITE, "function", "log", "float32", n=6)
    assert OpRanges(0, (call,)).per_step(call) == 6.0
    assert OpRanges(1, (call,)).per_step(call) == 6.0


def test_facts_leave_out_what_is_not_known():
    known = delicate(SITE, "output", "mm", "float16", low=0.0, high=2.5, feed="exp", library="lib")
    assert facts_of(known) == (
        ("operator", "mm"),
        ("dtype that ran", "float16"),
        ("range of the result", "0 to 2.5"),
        ("input created by", "exp"),
        ("inside", "lib"),
    )
    for low, high in ((None, 1.0), (1.0, None)):
        facts = dict(facts_of(delicate(SITE, "function", "log", "float16", low=low, high=high)))
        assert facts["range of the input"] == "unknown"
        assert "input created by" not in facts and facts["inside"] == "the line itself"


@pytest.mark.parametrize(
    ("n", "lost", "said"), [((2,), (2,), 2), ((1,), (1,), 0), ((3,), (2,), 0), ((2, 1), (2, 1), 3)]
)
def test_the_loss_is_lost_where_none_of_two_backwards_or_more_began_finite(n, lost, said):
    losses = tuple(
        delicate(SITE, "loss", "backward", "float16", n=each, overflowed=bad)
        for each, bad in zip(n, lost, strict=True)
    )
    assert OpRanges(3, losses).loss_lost == said
    assert OpRanges(3, ()).loss_lost == 0
