"""The memory model, and both sides of what fits."""

import pytest

from auditor.extensions.plan.fitting import MemoryModel, Point, fits, usable_bytes
from auditor.model.gpus import gpu_named

T4 = gpu_named("T4")


def point(batch, step, update=0, slack=1.0):
    peak = max(step, update)
    return Point(batch, {"step": step, "update": update}, peak, round(peak * slack))


def test_the_highest_phase_counts():
    """Small batches are held by the optimizer's step, large ones by activations."""
    model = MemoryModel([point(1, 110, 500), point(2, 120, 500)])
    assert model.allocated(8) == 500
    assert model.allocated(41) == 510
    assert model.grows and model.largest(510) == 40  # as multiples of eight
    assert not MemoryModel([point(1, 110, 500), point(2, 110, 500)]).grows


def test_points_beside_the_batch_count_and_no_others():
    """Of a curve each stretch has its own line."""
    model = MemoryModel([point(n, n * n) for n in (1, 2, 4, 8)])
    assert model.allocated(3) == 10
    assert model.allocated(6) == 40
    assert model.allocated(16) == 8 * 8 + 12 * 8


def test_what_is_reserved_beyond_is_a_share():
    model = MemoryModel([point(8, 100, slack=1.5), point(16, 200, slack=1.1)])
    assert model.reserved(32) == pytest.approx(1.1 * 400)


@pytest.mark.parametrize(
    ("usable", "batch"), [(100, None), (109, None), (110, 1), (119, 1), (120, 2), (420, 32)]
)
def test_the_largest_batch_is_the_last_that_fits(usable, batch):
    assert MemoryModel([point(8, 180), point(16, 260)]).largest(usable) == batch


def test_both_sides_of_what_fits():
    usable = usable_bytes(T4)
    assert usable == T4.memory_bytes - (100 << 20)
    assert fits(T4, usable, usable) == "yes"
    assert fits(T4, usable, usable + 1) == "tight"
    assert fits(T4, usable + 1, usable + 1) == "no"
