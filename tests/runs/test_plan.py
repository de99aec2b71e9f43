"""Passes of a target that takes too few steps for all of them: they fit, and causes come before
long timing.
"""

import pytest

from auditor.runs.plan import (
    MEMORY_STEPS,
    Change,
    Drill,
    Passes,
    Plan,
    Purpose,
    Replay,
    Trial,
    UntilOom,
    share_out,
)
from auditor.runs.repeat import Repeat

WANTED = {"quiet": 50, "trace": 5, "loud": 50, "numbers": 3}
REHEARSED = {"loud": 12, "leaner": 5, "numbers": 3}


@pytest.mark.parametrize("wanted", [WANTED, REHEARSED])
def test_passes_never_take_more_steps_than_there_are(
    wanted: dict[str, int],
) -> None:
    for steps in range(1, 150):
        shared = share_out(steps, 5, wanted)
        assert sum(shared.values()) <= steps
        assert all(0 < n <= wanted.get(name, 5) for name, n in shared.items())


def test_what_fits_is_given_in_full() -> None:
    assert share_out(113, 5, WANTED) == {"warmup": 5, **WANTED}
    assert share_out(112, 5, WANTED)["quiet"] == 49


def test_a_target_that_ends_is_timed_first_and_for_half_of_what_is_left() -> None:
    shared = share_out(40, 5, WANTED)
    assert list(shared) == ["warmup", *WANTED]
    assert abs(shared["quiet"] - shared["loud"]) <= 8
    assert sum(shared.values()) == 40


def test_the_smallest_target_has_causes_and_a_time() -> None:
    assert share_out(6, 5, WANTED) == {"warmup": 1, "quiet": 1, "loud": 3, "numbers": 1}


@pytest.mark.parametrize(("steps", "memory"), [(34, 3), (36, 4), (119, 12), (300, 12)])
def test_a_short_target_gives_a_tenth_of_its_steps_to_the_memory_pass(
    steps: int, memory: int
) -> None:
    shared = share_out(steps, 5, {**WANTED, "memory": MEMORY_STEPS})
    assert shared["memory"] == memory


@pytest.mark.parametrize(("steps", "leaner"), [(22, 5), (21, 0)])
def test_a_pass_that_must_be_whole_is_so_or_is_left_out(steps: int, leaner: int) -> None:
    shared = share_out(steps, 2, REHEARSED)
    assert shared["loud"] == 12
    assert shared.get("leaner", 0) == leaner


@pytest.mark.parametrize(
    "purpose",
    [
        Passes(values=3),
        Replay(7, 5),
        UntilOom(4),
        Repeat(("torch",), 7),
        Drill("nan"),
        Trial(1),
        Change((2, 1), (("a.py", 3),), optimizer={"fused": True}),
    ],
    ids=lambda purpose: type(purpose).__name__,
)
def test_a_plan_survives_the_process_seam(purpose: Purpose) -> None:
    plan = Plan(
        "a:b",
        ("x", "\udcff"),  # as Python has a byte of the command line that is no UTF-8
        5,
        1,
        "cpu",
        "folder",
        ("reads",),
        purpose,
        gpu="T4",
        played=(0, 3),
    ).fitted(16)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.fit == 16


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (60, {"warmup": 2, "loud": 12, "leaner": 5, "numbers": 3, "values": 38}),
        (30, {"warmup": 2, "loud": 12, "leaner": 5, "numbers": 3, "values": 8}),
        (17, {"warmup": 1, "loud": 12, "numbers": 3, "values": 1}),
        (12, {"warmup": 1, "loud": 8, "numbers": 3}),
    ],
)
def test_the_value_pass_has_what_the_others_leave(steps: int, expected: dict[str, int]) -> None:
    wanted = {"loud": 12, "leaner": 5, "numbers": 3, "values": 38}
    assert share_out(steps, 2, wanted) == expected


@pytest.mark.parametrize("steps", range(18, 40, 3))
def test_a_median_comes_before_the_second_gradient(steps: int) -> None:
    shared = share_out(steps, 5, {**WANTED, "numbers": 3, "gradients": 2})
    assert shared["quiet"] >= 3 or "gradients" not in shared
