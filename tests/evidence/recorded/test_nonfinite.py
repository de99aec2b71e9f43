"""What stopped being finite: the row, the replay's birth of it, and what is said of the cause."""

import pytest
from auditor.rules.num.nonfinite import BadTensor, Birth, InputRange, Nonfinite

from tests.evidence.recorded.rows import loud, quiet, steps

BAD = {"what": "gradient", "last_good": 3, "n": 7, "tensors": [{"name": "w", "value": "nan"}]}


def birth(op="exp", phase="forward", *ranges, dtype="float16", **more):
    inputs = tuple(InputRange("float32", *each) for each in ranges)
    return Birth(op, phase, "inf", 5, dtype=dtype, inputs=inputs, **more)


def test_without_a_replay_the_run_itself_counts(seen):
    rows = [quiet(4, global_step=4, **BAD), quiet(5, global_step=9, **{**BAD, "n": 1})]
    found = seen(steps=steps(3), nonfinite=rows).get(Nonfinite)
    assert (found.step, found.steps, found.count, found.replayed) == (4, 3, 7, False)
    assert found.tensors == (BadTensor("gradient", "w", "nan"),)
    assert found.facts == (
        ("first bad step", "4 (counted from 0, warm-up included)"),
        ("tensors not finite after it", "7"),
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (InputRange("float16", -1.0, 2.5, 0.0), "float16 from -1 to 2.5"),
        (InputRange("float16", -1.0, 2.5, 0.25), "float16 from -1 to 2.5, 25% not finite"),
        (InputRange("float16", None, 2.5), "float16, range unknown"),
        (InputRange("float16", -1.0, None), "float16, range unknown"),
    ],
)
def test_a_range_in_words(given, said):
    assert str(given) == said


@pytest.mark.parametrize(
    ("found", "ran_away"),
    [
        (birth("mm", "forward", (-1.0, 2.0), (-1.0, 1e18)), True),
        (birth("mm", "forward", (-1.0, 2.0), (-1e18, 1.0)), True),
        (birth("mm", "forward", (-1.0, 2.0), (-1.0, 9.9e17)), False),
        (birth("mm", "backward", (-1.0, 1e18)), False),
        (birth("exp", "forward", (-1.0, 1e18)), False),
        (birth("mm", "forward"), False),
    ],
)
def test_products_run_away_where_an_activation_is_about_the_root_of_the_largest(found, ran_away):
    assert found.ran_away is ran_away
    assert (found.kind == "product") is ran_away


@pytest.mark.parametrize(("clipped", "line"), [(False, 4), (True, None)])
def test_where_an_optimizer_steps_that_nothing_clips_for(seen, clipped, line):
    seen(inside="replay", sites=[8], nonfinite=[loud(2, global_step=6, **BAD)], births=[])
    norm = {"optimizer": 0, "norm": "nan", "clipped": clipped}
    norms = [loud(n, global_step=n, at=at, **norm) for n, at in enumerate((None, 0))]
    evidence = seen(sites=[4], norms=norms, nonfinite=[loud(1, global_step=4, **BAD)])
    at = evidence.get(Nonfinite).unclipped
    assert (None if at is None else at.line) == line


@pytest.mark.parametrize(
    ("op", "phase", "node", "name", "operator", "kind"),
    [
        ("log", "forward", "", "log", "log", "log"),
        ("to_copy", "forward", "", "to_copy", "a cast", ""),
        ("mul", "backward", "SqrtBackward0", "sqrt", "the backward of sqrt", "sqrt"),
        ("mul", "backward", "MineBackward", "mul", "mul in the backward of Mine", "mul"),
        ("mul", "backward", "torch::x", "torch::x", "the backward of torch::x", ""),
        ("mul", "backward", "Backward0", "Backward0", "the backward of Backward0", ""),
        ("addcdiv", "optimizer", "", "addcdiv", "the optimizer's addcdiv", "optimizer"),
        ("add", "input", "", "add", "add", "input"),
        ("log", "parameter", "", "log", "log", ""),
    ],
)
def test_names_of_what_made_it(op, phase, node, name, operator, kind):
    found = birth(op, phase, node=node)
    assert (found.forward_name, found.operator, found.kind) == (name, operator, kind)


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (birth("exp", "forward"), ""),
        (birth("exp", "forward", (None, 1.0)), ""),
        (birth("exp", "forward", (1.0, None)), ""),
        (
            birth("exp", "forward", (-1.0, 12.0)),
            "its input went up to 12, and float16 overflows at 11.1",
        ),
        (
            birth("expm1", "forward", (-1.0, 12.0), dtype="float32"),
            "its input went up to 12, and float32 overflows at 88.7",
        ),
        (birth("exp", "backward", (-1.0, 12.0)), "its inputs went from -1 to 12"),
        (birth("exp", "forward", (-1.0, 12.0), dtype="int8"), "its inputs went from -1 to 12"),
        (
            birth("to_copy", "forward", (-8e4, 7e4)),
            "its input went up to 8e+04, and float16 ends at 6.55e+04",
        ),
        (birth("to_copy", "forward", (1.0, 2.0), dtype="?"), "its inputs went from 1 to 2"),
        (birth("log", "forward", (0.0, 5.0)), "its input reached 0"),
        (birth("sqrt", "forward", (-2.0, 5.0)), "its input went down to -2"),
        (birth("log", "forward", (0.5, 5.0)), "its inputs went from 0.5 to 5"),
        (birth("mul", "forward", (0.0, 5.0)), "its inputs went from 0 to 5"),
        (
            birth("mul", "forward", (0.5, 5.0, 0.0), (-3.0, 1.0, 0.5), (2.0, 9.0, None)),
            "its inputs went from -3 to 9; 50% of one was not finite",
        ),
        (
            birth("mul", "forward", (0.5, 5.0), constants=("inf", "nan")),
            "its inputs went from 0.5 to 5 and the constant inf",
        ),
    ],
    ids=str,
)
def test_the_cause_by_the_ranges(found, cause):
    assert found.cause.replace("6.55e+04", "6.55e+04") == cause
