"""Whether two runs computed the same: to the bit, within a tolerance, or where they part."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.extensions.verify.trials import TOLERANCE, Results, agree, tolerance_for
from auditor.model import Edit, Site

BASE = Results((0.5, 0.25), (("parameter 0", 3.0, 17), ("parameter 1", 4.0, 18)))


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (
            Results((0.5, math.nextafter(0.25, 1)), BASE.parameters),
            "loss 2 is 0.25 instead of 0.25",
        ),
        (Results((0.5, math.nan), BASE.parameters), "loss 2 is nan"),
        (Results((0.5,), BASE.parameters), "backward was called on 1 losses instead of 2"),
        (Results(BASE.losses, BASE.parameters[:1]), "the optimizers hold other parameters"),
        (
            Results(BASE.losses, (("parameter 0", 3.5, 17), BASE.parameters[1])),
            "parameter 0 ends with norm 3.5 instead of 3",
        ),
        (
            Results(BASE.losses, (("parameter 0", 3.0, 99), BASE.parameters[1])),
            "parameter 0 ends with other bits",
        ),
    ],
)
def test_one_bit_is_a_difference_and_the_first_one_is_named(other, note):
    found = agree(BASE, other)
    assert not found.same
    assert note in found.note


def test_nan_on_both_sides_is_the_same():
    broken = Results((math.nan,), ())
    assert agree(broken, Results((float("nan"),), ())).same


def test_only_what_rounds_in_another_order_has_a_tolerance_and_it_is_stated():
    site = Site("a.py", 1)
    assert tolerance_for([Edit(site, "set_keyword", "AdamW", "set_to_none", "True")]) == (0.0, "")
    tolerance, reason = tolerance_for([Edit(site, "set_keyword", "AdamW", "fused", "True")])
    near = Results(
        (0.5, 0.25 * (1 + TOLERANCE / 2)), (("parameter 0", 3.0, 1), ("parameter 1", 4.001, 2))
    )
    found = agree(BASE, near, tolerance, reason)
    assert found.same
    assert "within 0.001" in found.note
    assert "rounds in another order" in found.note
    assert not agree(BASE, near).same
    far = Results((0.5, 0.26), BASE.parameters)
    assert not agree(BASE, far, tolerance, reason).same


@given(
    st.lists(st.floats(), max_size=4),
    st.lists(st.floats(), max_size=4),
    st.sampled_from([0.0, TOLERANCE]),
)
def test_agreement_has_no_side(one, other, tolerance):
    first, second = Results(tuple(one), ()), Results(tuple(other), ())
    assert agree(first, second, tolerance).same == agree(second, first, tolerance).same
    assert agree(first, first, tolerance).same


def test_a_parameter_is_called_as_its_module_calls_it():
    other = Results(BASE.losses, (("parameter 0", 3.5, 17), BASE.parameters[1]))
    named = Results(BASE.losses, BASE.parameters, {"parameter 0": "Model.body.weight"})
    assert agree(named, other).note.startswith("Model.body.weight ends with norm 3.5")
