"""What the parent asks of the recording child."""

import pytest

from auditor.runs.plan import Change, Drill, Passes, Plan, Replay, Trial, UntilOom
from auditor.runs.repeat import Repeat


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
def test_a_plan_survives_the_process_seam(purpose):
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
