"""What a turn of a loop needs of the turns before it, operator by operator."""

import pytest
from auditor.rules.kern.probes.indexing_loops import Made, Turns, made_of


def run(*names: str) -> Turns:
    """A loop whose state goes through these operators in each of three turns of ten numbers."""
    turns = Turns(at=0, op="mul", kind="pieces", shapes=(), first=10, last=10)
    state = Made(5)
    for start in (10, 20, 30):
        turns.last = start
        for number, name in enumerate(names, start + 1):
            state = made_of(name, number, [state], [turns])
    return turns


@pytest.mark.parametrize(
    ("names", "chained"),
    [
        (["add"], False),
        (["maximum"], False),
        (["maximum", "copy", "maximum"], False),
        (["minimum", "stack"], False),
        (["logical_or"], False),
        (["sum", "sub", "cat"], False),
        (["mul"], True),
        (["tanh"], True),
        (["add", "mul"], True),
        (["add", "maximum"], True),
        (["maximum", "minimum"], True),
        (["add", "local_scalar_dense"], True),
    ],
)
def test_a_state_that_only_folds_is_none(names, chained):
    assert run(*names).chained is chained
