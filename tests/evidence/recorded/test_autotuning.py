"""New sizes of convolutions, step by step."""

import pytest
from auditor.rules.cfg.autotuning import Autotuning

from tests.evidence.recorded.rows import loud, steps


def row(step, new=1, *, at=0, shape=(2, 3, 16, 16), benchmark=True):
    return loud(step, at=at, n=4, new=new, shape=list(shape), benchmark=benchmark)


def built(seen, rows, number=8):
    return seen(device="rehearse", sites=[3, 5], steps=steps(number), conv_sizes=rows).get(
        Autotuning
    )


@pytest.mark.parametrize(("new", "on"), [(1, False), (0, True)])
def test_benchmark_mode_must_be_on_wherever_a_size_is_new(seen, new, on):
    assert built(seen, [row(0), row(1, new, benchmark=False)]).benchmark is on


def test_no_convolution_is_no_new_size(seen):
    new = built(seen, [])
    assert (new.pattern.seen, new.sizes, new.site) == ((), 0, None)
