"""Delicate operators: what their rows mean, and when an epsilon vanishes."""

from __future__ import annotations

import math

import pytest
import torch

from auditor.evidence.recorded.op_ranges import LARGEST, SMALLEST, Delicate, OpRanges
from auditor.model import Site

SITE = Site("trainer.py", 1)
PASSES = {"passes": [{"name": "numbers", "steps": 3}, {"name": "loud", "steps": 9}]}


def row(**more):
    fields = {"what": "function", "op": "log", "dtype": "float16", "n": 6, "steps": 2, "low": 0.5}
    fields |= {"high": 2.0, "into": [], "loss": False}
    return {"pass": "numbers", "step": 2, "at": 0, **fields, **more}


@pytest.mark.parametrize("dtype", SMALLEST)
def test_smallest_and_largest_are_those_of_torch(dtype):
    info = torch.finfo(getattr(torch, dtype))
    assert SMALLEST[dtype] == math.ldexp(1.0, round(math.log2(info.tiny * info.eps)))
    assert LARGEST[dtype] == pytest.approx(info.max, rel=1e-5)


@pytest.mark.parametrize(
    ("scalar", "dtype", "vanishes"),
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
def test_an_epsilon_vanishes_up_to_half_of_the_smallest_number(scalar, dtype, vanishes):
    assert Delicate(SITE, "epsilon", "add", dtype, scalar=scalar).vanishes is vanishes


def test_rows_of_the_numbers_pass(seen):
    rows = [
        row(),
        row(
            scalar=1e-8,
            feed="softmax",
            guarded=True,
            unasked=True,
            overflowed=4,
            low=None,
            high="inf",
            into=["log", "div"],
            loss=True,
            at=1,
        ),
    ]
    places = [4, (5, {"via": "torch/optim/adam.py:step"})]
    table = seen(sites=places, manifest=PASSES, numerics=rows).get(OpRanges)
    plain, full = table.calls
    assert (table.steps, table.per_step(plain)) == (3, 2.0)
    assert (plain.site.line, plain.what, plain.op, plain.n, plain.steps) == (
        4,
        "function",
        "log",
        6,
        2,
    )
    assert (plain.low, plain.high, plain.scalar, plain.feed) == (0.5, 2.0, 0.0, "")
    assert (plain.guarded, plain.unasked, plain.overflowed, plain.loss) == (False, False, 0, False)
    assert (plain.library, plain.in_optimizer, plain.into) == ("", False, ())
    assert (full.low, full.high, full.scalar, full.feed) == (None, math.inf, 1e-8, "softmax")
    assert (full.guarded, full.unasked, full.overflowed, full.loss) == (True, True, 4, True)
    assert (full.library, full.in_optimizer) == ("torch/optim/adam.py:step", True)
    assert full.into == ("log", "div")
    assert list(table.of("function")) == [plain, full] and list(table.of("output")) == []


def test_no_pass_no_division():
    call = Delicate(SITE, "function", "log", "float32", n=6)
    assert OpRanges(0, (call,)).per_step(call) == 6.0
    assert OpRanges(1, (call,)).per_step(call) == 6.0


@pytest.mark.parametrize(
    ("dtype", "half"), [("float16", True), ("bfloat16", True), ("float32", False)]
)
def test_half(dtype, half):
    assert Delicate(SITE, "function", "log", dtype).half is half


def test_facts_leave_out_what_is_not_known():
    known = Delicate(SITE, "output", "mm", "float16", low=0.0, high=2.5, feed="exp", library="lib")
    assert known.facts == (
        ("operator", "mm"),
        ("dtype that ran", "float16"),
        ("range of the result", "0 to 2.5"),
        ("input made by", "exp"),
        ("inside", "lib"),
    )
    for low, high in ((None, 1.0), (1.0, None)):
        facts = dict(Delicate(SITE, "function", "log", "float16", low=low, high=high).facts)
        assert facts["range of the input"] == "unknown"
        assert "input made by" not in facts and facts["inside"] == "the line itself"


@pytest.mark.parametrize(
    ("n", "lost", "said"), [((2,), (2,), 2), ((1,), (1,), 0), ((3,), (2,), 0), ((2, 1), (2, 1), 3)]
)
def test_the_loss_is_lost_where_none_of_two_backwards_or_more_began_finite(n, lost, said):
    losses = tuple(
        Delicate(SITE, "loss", "backward", "float16", n=each, overflowed=bad)
        for each, bad in zip(n, lost, strict=True)
    )
    assert OpRanges(3, losses).loss_lost == said
    assert OpRanges(3, ()).loss_lost == 0
