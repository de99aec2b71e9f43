"""New sizes of convolutions, step by step."""

import pytest
from auditor.rules.cfg.autotuning import Autotuning

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, steps


def row(step, new=1, *, at=0, shape=(2, 3, 16, 16), benchmark=True):
    return loud(step, at=at, n=4, new=new, shape=list(shape), benchmark=benchmark)


def built(seen, rows, number=8):
    return seen(device="rehearse", sites=[3, 5], steps=steps(number), conv_sizes=rows).get(
        Autotuning
    )


def test_steps_with_new_sizes_and_the_last_of_them(seen):
    rows = [row(0, 3), row(1, 0), row(5, at=1, shape=(2, 9))]
    new = built(seen, rows)
    assert (new.pattern.seen, new.pattern.of, new.sizes) == ((0, 5), 8, 4)
    assert (new.site.line, new.shape, new.benchmark) == (5, (2, 9), True)


@pytest.mark.parametrize(("new", "on"), [(1, False), (0, True)])
def test_benchmark_mode_must_be_on_wherever_a_size_is_new(seen, new, on):
    assert built(seen, [row(0), row(1, new, benchmark=False)]).benchmark is on


def test_no_convolution_is_no_new_size(seen):
    new = built(seen, [])
    assert (new.pattern.seen, new.sizes, new.site) == ((), 0, None)


def test_a_run_without_a_rehearsal_asks_its_trace(seen):
    with pytest.raises(NotLooked):
        seen(steps=steps(8)).get(Autotuning)
