"""What the rules about half precision say of float16 and of bfloat16, and their thresholds: on
tables made by hand.
"""

import pytest
from auditor.rules.amp.precision import GradScalerMisused
from auditor.rules.num.formulas import EpsilonVanishes
from auditor.rules.num.half_range import LEAST, UpdatesRoundedAway
from auditor.rules.num.rows import UpdateRow
from auditor.rules.opt.gradients import AverageIsTheWeights
from auditor.rules.opt.rows import AverageRow

from auditor.evidence.recorded.amp import Amp, OpRanges
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from tests.rules.asking import ask, delicate, happened, rescaled, rows

LINE = Site("trainer.py", 1, "step")


# -- NUM012 ----------------------------------------------------------------------------------------


def epsilon(dtype, scalar, into=("log",), **more):
    text = f"x = torch.clamp(y, min={scalar!r})"
    call = delicate(LINE, "epsilon", "clamp_min", dtype, scalar=scalar, into=into, **more)
    rule = EpsilonVanishes()
    found = list(ask(rule, OpRanges(3, (call,)), Source({"trainer.py": text})))
    return found, [rule.remedy(each) for each in found]


@pytest.mark.parametrize(
    ("dtype", "least"), [("float16", "1e-4"), ("bfloat16", "1e-6"), ("float32", "1e-12")]
)
def test_the_epsilon_that_is_advised_is_one_that_the_dtype_holds(dtype, least):
    _, (remedy,) = epsilon(dtype, 1e-60)
    assert remedy.text.endswith(f"such as {least}.")
    assert [edit.value for edit in remedy.edits] == [least]
    _, (remedy,) = epsilon(dtype, 1e-60, library="torch/optim/adam.py:step")
    assert remedy.text.endswith(f"eps={least}.")
    assert not epsilon(dtype, float(least))[0]


@pytest.mark.parametrize(("scalar", "expected"), [(0.015, 1), (0.0158, 0)])
def test_an_epsilon_is_steep_where_its_derivative_is_beyond_the_root_of_the_largest_number(
    scalar, expected
):
    """Half of 0.0156 ** -1.5 is 256, which is the root of 65504."""
    assert len(epsilon("float16", scalar, into=("rsqrt",))[0]) == expected
    assert len(epsilon("float16", scalar, into=("sqrt",))[0]) == 0


# -- NUM005 ----------------------------------------------------------------------------------------


def updated(steps=3, asked=LEAST, lost=1.0, dtype="bfloat16"):
    facts = {"steps": steps, "asked": asked, "kept": round(lost * asked)}
    row = UpdateRow(at=0, optimizer="SGD", dtype=dtype, rate=1e-4, **facts)
    return list(ask(UpdatesRoundedAway(), rows(row, sites=(LINE,))))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, 1),
        ({"steps": 2}, 0),
        ({"asked": LEAST - 1}, 0),
        ({"asked": 1000, "lost": 0.5}, 1),
        ({"asked": 1000, "lost": 0.499}, 0),
        ({"asked": 0}, 0),
    ],
)
def test_lost_updates_are_reported_from_half_of_enough_of_them_on(more, expected):
    assert len(updated(**more)) == expected


def test_updates_are_placed_at_the_only_cast_and_say_where_the_optimizer_steps():
    cast = Site("model.py", 7, "build")
    facts = {"optimizer": "SGD", "dtype": "bfloat16", "rate": 1e-4, "steps": 3}
    row = UpdateRow(at=0, cast_at=1, asked=LEAST, kept=LEAST, **facts)
    (finding,) = ask(UpdatesRoundedAway(), rows(row, sites=(LINE, cast)))
    assert (finding.site, finding.facts) == (cast, (("steps at", str(LINE)),))
    (finding,) = updated()
    assert (finding.site, finding.facts) == (LINE, ())


# -- OPT019 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"weight": 0.95}, [None]),
        ({"weight": 0.949}, []),
        ({"weight": 0.99, "steps": 2}, [None]),
        ({"weight": 0.99, "steps": 1}, []),
        ({"weight": 0.99, "steps": 3, "watched": 5}, []),
        ({"weight": 1.0, "itself": 7}, []),
        ({"weight": 1.0, "itself": 8, "steps": 1}, [None]),
        ({"weight": 1.0, "itself": 8, "copies": True}, [Severity.NOTE]),
    ],
)
def test_averages_without_a_memory(facts, expected):
    facts = {"steps": 3, "watched": 3, "n": 8, "itself": 0, "copies": False, **facts}
    found = ask(AverageIsTheWeights(), rows(AverageRow(at=0, **facts), sites=(LINE,)))
    assert [each.severity for each in found] == expected


# -- AMP006 ----------------------------------------------------------------------------------------


def skips(of, skipped):
    """What is said of updates, some of which skip a step: they halve the scale."""
    updates = tuple(
        rescaled(LINE, step, 1024.0, 512.0 if step in skipped else 1024.0) for step in range(of)
    )
    return [each.message for each in ask(GradScalerMisused(), Amp(of, (), updates))]


@pytest.mark.parametrize(
    ("skipped", "of", "expected"),
    [
        ((3, 8), 10, 1),  # exactly a fifth
        ((3, 8), 11, 0),
        ((1, 6), 8, 1),
        ((1, 5), 7, 0),  # too few to say
        ((1, 2, 3), 10, 0),  # early ones: the scale comes down to where it fits
        ((1, 2, 5), 10, 1),
    ],
)
def test_skipped_steps_count_from_a_fifth_of_enough_updates_on(skipped, of, expected):
    found = skips(of, skipped)
    assert [f"skipped {len(skipped)} of {of} steps" in each for each in found] == [True] * expected


@pytest.mark.parametrize(("scale", "expected"), [(1.0, 0), (0.5, 1)])
def test_a_scale_below_one_at_the_end_is_reported_of_any_skips(scale, expected):
    others = (rescaled(LINE, step, scale, scale) for step in range(1, 10))
    updates = (rescaled(LINE, 0, 2.0, scale), *others)
    found = ask(GradScalerMisused(), Amp(10, (), updates))
    assert ["unscaled gradients overflow" in each.message for each in found] == [True] * expected


def test_the_scale_that_is_told_is_that_of_the_last_update():
    scales = [1024.0, 512.0, 256.0, 128.0, 64.0, 32.0, 16.0, 8.0, 4.0]
    updates = (rescaled(LINE, step, scale, scale / 2) for step, scale in enumerate(scales))
    (found,) = ask(GradScalerMisused(), Amp(9, (), tuple(updates)))
    assert "and its scale dropped to 2" in found.message


@pytest.mark.parametrize(("interval", "expected"), [(99_999.0, 0), (100_000.0, 1)])
def test_a_scale_never_grows_from_an_interval_on_that_no_run_reaches(interval, expected):
    events = tuple(happened("scale", LINE, step) for step in range(4))
    text = f"loss()\nscaler = GradScaler('cuda', growth_interval={interval:.0f})"
    table = Amp(4, events, intervals=(2000.0, interval))
    found = list(ask(GradScalerMisused(), table, Source({"a.py": text})))
    assert [each.site.line for each in found] == [2] * expected
    elsewhere = list(ask(GradScalerMisused(), table))
    assert [each.site for each in elsewhere] == [LINE] * expected


@pytest.mark.parametrize(
    ("what", "steps", "expected"),
    [
        ("clamp_scaled", 3, 0),
        ("clamp_scaled", 4, 1),
        ("made", 3, 0),
        ("made", 4, 1),
        ("step_again", 1, 0),  # a quarter: of a script each of the two counts as a step
        ("step_again", 2, 1),
    ],
)
def test_what_a_scaler_is_misused_for_is_told_from_half_of_the_steps_on(what, steps, expected):
    events = tuple(happened(what, LINE, step) for step in range(steps))
    found = list(ask(GradScalerMisused(), Amp(8, events)))
    assert [each.site for each in found] == [LINE] * expected
    assert all(GradScalerMisused().remedy(each) is not None for each in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def clip(p, norm):\n    c = limit / (norm + 1e-6)\n    p.grad.mul_(c)", 1),
        ("def clip(p, norm):\n    c = 1.0\n    p.grad.mul_(limit / norm)", 1),
        ("def clip(p, norm):\n    c = 1.0 / tokens\n    p.grad.mul_(c)", 0),
        ("def clip(p, norm):\n    c = 1.0 / norm\n    p.grad.mul_(0.5)", 0),
    ],
)
def test_gradients_are_clipped_by_a_factor_that_a_norm_decides(text, expected):
    site = Site("a.py", 3, "clip")
    events = tuple(happened("mul_scaled", site, step) for step in range(4))
    found = list(ask(GradScalerMisused(), Amp(4, events), Source({"a.py": text})))
    assert len(found) == expected


def test_a_missing_update_that_ended_the_run():
    (found,) = ask(GradScalerMisused(), Amp(not_updated=LINE))
    assert (found.site, found.severity) == (LINE, Severity.ERROR)
    assert "update()" in GradScalerMisused().remedy(found).text
