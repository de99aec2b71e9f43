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


def test_what_is_computed_of_it_once_is_no_state():
    turns = Turns(at=0, op="mul", kind="pieces", shapes=(), first=10, last=20)
    early, late = Made(12), Made(22)
    once = made_of("relu", 23, [early, late], [turns])
    assert once.carried[turns].used == 23
    twice = made_of("relu", 24, [once], [turns])
    assert (twice.carried[turns].used, turns.chained) == (23, False)  # in the same turn
    turns.last = 30
    gathered = made_of("stack", 31, [twice], [turns])
    assert (gathered.carried[turns].used, turns.chained) == (23, False)
    made_of("relu", 32, [gathered], [turns])
    assert turns.chained


def test_what_was_made_before_the_loop_or_in_the_latest_turn_is_not_carried():
    turns = Turns(at=0, op="mul", kind="pieces", shapes=(), first=10, last=20)
    for number in (9, 20, 21):
        assert made_of("tanh", 22, [Made(number)], [turns]).carried == {}
    for number in (10, 19):
        assert set(made_of("tanh", 22, [Made(number)], [turns]).carried) == {turns}
    assert made_of("local_scalar_dense", 22, [Made(9)], [turns]).carried == {}
    assert not turns.chained
