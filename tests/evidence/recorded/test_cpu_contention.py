"""When a machine counts as busy: by waiting alone, or by some of it and uneven steps."""

import pytest

from auditor.evidence.recorded.steps import QUEUED, CpuContention, Step


@pytest.mark.parametrize(
    ("queued", "uneven", "busy"),
    [
        (QUEUED, 1.0, True),
        (0.099, 1.49, False),
        (0.03, 1.5, True),
        (0.029, 9.0, False),
        (0.03, 1.49, False),
        (0.0, 1.0, False),
    ],
)
def test_busy_on_both_sides_of_each_border(queued, uneven, busy):
    found = CpuContention(queued, uneven)
    assert found.busy is busy
    assert bool(found.caution) is busy


def test_the_caution_says_how_long_the_steps_waited_and_what_to_do():
    said = CpuContention(0.25).caution
    assert "steps waited for a CPU 25% of the" in said and "audit again" in said


def test_waiting_is_shared_over_all_steps_and_quartiles_need_ten():
    steps = tuple(Step(n, us=1000.0 * (1 + n), queued_us=100.0 * n) for n in range(10))
    found = CpuContention.of(steps)
    own = sorted(1000.0 * (1 + n) - 100.0 * n for n in range(10))
    assert found.queued == pytest.approx(4500.0 / 55_000.0)
    # quartiles of ten values (exclusive): between the 2nd and 3rd, the 8th and 9th
    low, high = own[1] + 0.75 * (own[2] - own[1]), own[7] + 0.25 * (own[8] - own[7])
    assert found.uneven == pytest.approx(high / low)
    assert CpuContention.of(steps[:9]).uneven == 1.0
    assert CpuContention.of(()) == CpuContention(0.0, 1.0)
