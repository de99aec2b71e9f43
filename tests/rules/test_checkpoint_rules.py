"""The rules about checkpoints, on scans made by hand: what each says, and where it is silent."""

from typing import Any

import pytest
from auditor.rules.ckpt.files import (
    CheckpointDamaged,
    CheckpointOverridesRate,
    CheckpointRefused,
    OptimizerMomentsSpoiled,
)
from auditor.rules.ckpt.resuming import CheckpointCannotResume

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.scans import OptimizerFacts, Scan, SchedulerFacts, Setting, Tally, TensorFacts
from auditor.model import Severity, Site
from auditor.recordings.schema.data import SaveRow
from auditor.rule import NotLooked
from tests.rules.asking import lines

WEIGHTS = TensorFacts("model.w", "float32", (2, 3), "model", Tally(6, low=-1.0, high=1.0))
ADAM = OptimizerFacts("optimizer", ({"lr": 0.1},), 20)


def scan(**facts: Any) -> Scan:
    return Scan(**{"path": "/runs/a.pt", "format": "torch zip", "size": 9, **facts})


def table(*scans: Scan, **settings: Any) -> Checkpoints:
    given = tuple(Setting(name.replace("__", "."), value) for name, value in settings.items())
    return Checkpoints(tuple(Checkpoint(each) for each in scans), given)


# -- CKPT001 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "said", "severity"),
    [
        ({}, None, None),
        (
            {"refused": "its pickle names os.system"},
            "is refused by torch: its pickle names os",
            None,
        ),
        ({"refused": "no", "foreign": ("numpy.dtype",)}, "is refused by torch: no", None),
        ({"foreign": ("argparse.Namespace",)}, "it needs argparse.Namespace", Severity.NOTE),
    ],
)
def test_what_torch_makes_of_a_file(facts, said, severity):
    found = list(CheckpointRefused().detect(table(scan(**facts))))
    assert [said in each.message for each in found] == ([] if said is None else [True])
    assert all(each.severity is severity for each in found)
    for each in found:
        text = CheckpointRefused().remedy(each).text
        assert ("picklescan" in text) == (severity is None)


@pytest.mark.parametrize(("number", "end"), [(5, "my.C4"), (6, "my.C4 and 1 more")])
def test_five_names_are_given(number, end):
    names = tuple(f"my.C{n}" for n in range(number))
    (found,) = CheckpointRefused().detect(table(scan(foreign=names)))
    assert found.message.endswith(end)
    assert len(found.facts) == 1 + number
    (many,) = CheckpointRefused().detect(table(scan(foreign=names * 9)))
    assert len(many.facts) == 21


# -- CKPT003 ---------------------------------------------------------------------------------------

HERE, THERE = Site("t.py", 3, "save", ""), Site("t.py", 9, "save", "")


def saves(*each: tuple[Site, str | None, bool]) -> Lines[SaveRow]:
    sites = HERE, THERE
    made = (
        SaveRow(
            at=sites.index(site),
            step=step,
            us=1000.0 * (step + 1),
            path=path,
            replaced=replaced,
            bytes=None,
        )
        for step, (site, path, replaced) in enumerate(each)
    )
    return lines(*made, sites=sites, of=8, kind=SaveRow)


def test_the_only_checkpoint_is_written_over():
    over = [(HERE, "a.pt", False), (HERE, "a.pt", True), (HERE, "a.pt", True)]
    (found,) = CheckpointDamaged().detect(saves(*over))
    assert found.site == HERE and "one of these 3 ms has none" in found.message
    assert dict(found.facts) == {"file": "a.pt", "overwritten": "2 times"}
    assert (found.steps, found.per_step) == (3, 3 / 8)


@pytest.mark.parametrize(
    "each",
    [
        [],
        [(HERE, "a.pt", False), (HERE, "a.pt", True)],
        [(HERE, "a.pt", True), (HERE, "b.pt", True)],
        [(HERE, None, True), (HERE, None, True)],
        [(HERE, "a.pt", True), (HERE, "a.pt", True), (THERE, "b.pt", False)],
    ],
)
def test_a_run_with_another_checkpoint_says_nothing(each):
    with pytest.raises(NotLooked):
        list(CheckpointDamaged().detect(saves(*each)))


def test_a_line_that_does_not_write_over_is_not_told():
    each = [(HERE, "a.pt", True), (HERE, "a.pt", True), (THERE, "a.pt", False)]
    assert [one.site for one in CheckpointDamaged().detect(saves(*each))] == [HERE]


@pytest.mark.parametrize(
    ("damage", "said"),
    [((), None), (("cut",), "is damaged: cut"), (("cut", "b"), "cut; and 1 more")],
)
def test_damage(damage, said):
    good = scan(path="/runs/b.pt", tensors=(WEIGHTS,))
    found = list(CheckpointDamaged().in_checkpoint(table(scan(damage=damage), good)))
    assert [each.message.endswith(said) for each in found] == ([True] if damage else [])
    for each in found:
        text = CheckpointDamaged().remedy(each).text
        assert text.startswith("The latest good one is b.pt. Save to")


def test_twenty_damages_are_facts_and_there_may_be_no_good_one():
    broken = scan(damage=tuple("abcdefghijklmnopqrstuvwxyz"))
    (found,) = CheckpointDamaged().in_checkpoint(table(broken))
    assert len(found.facts) == 21
    assert CheckpointDamaged().remedy(found).text.startswith("Save to")


# -- CKPT005 ---------------------------------------------------------------------------------------

WHOLE = {
    "tensors": (WEIGHTS,),
    "optimizers": (ADAM,),
    "schedulers": (SchedulerFacts("scheduler", position=3),),
    "scaler": True,
    "rng": True,
    "progress": {"step": 3},
}


def lacks(settings=None, **facts):
    given = table(scan(**{**WHOLE, **facts}), **(settings or {}))
    found = CheckpointCannotResume().in_checkpoint(given)
    return [(each.message.partition(": ")[0], each.severity) for each in found]


DRIVEN = (OptimizerFacts("optimizer", ({"lr": 0.1, "initial_lr": 0.2},), 20),)


@pytest.mark.parametrize(
    ("facts", "missing", "severity"),
    [
        ({}, None, None),
        ({"tensors": ()}, None, None),
        ({"tensors": (), "rng": False}, None, None),
        ({"damage": ("cut",), "rng": False}, None, None),
        ({"optimizers": (), "schedulers": (), "scaler": False, "rng": False}, None, None),
        ({"optimizers": ()}, "optimizer state", Severity.WARNING),
        ({"optimizers": (), "schedulers": ()}, "optimizer state", Severity.WARNING),
        ({"optimizers": (), "scaler": False}, "optimizer state", Severity.WARNING),
        ({"optimizers": DRIVEN, "schedulers": ()}, "scheduler", Severity.WARNING),
        ({"optimizers": DRIVEN}, None, None),
        ({"schedulers": ()}, None, None),
        ({"rng": False}, "random states", Severity.NOTE),
        ({"progress": {}}, None, None),
        (
            {"optimizers": DRIVEN, "schedulers": (), "rng": False},
            "scheduler and no random states",
            Severity.WARNING,
        ),
    ],
)
def test_what_a_checkpoint_lacks(facts, missing, severity):
    expected = [] if missing is None else [(f"a.pt holds no {missing}", severity)]
    assert lacks(**facts) == expected


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"progress": {}}, True),
        ({"progress": {"epoch": 1}}, False),
        ({"progress": {"step": 0}}, False),
        ({"progress": {}, "schedulers": (SchedulerFacts("s", position=0),)}, False),
        ({"progress": {}, "schedulers": (SchedulerFacts("s"),)}, True),
        (
            {"progress": {}, "schedulers": (SchedulerFacts("s"), SchedulerFacts("t", position=1))},
            False,
        ),
    ],
)
def test_something_says_where_the_training_was(facts, missing):
    bare = {"optimizers": (OptimizerFacts("optimizer", ({"lr": 0.1},)),), "schedulers": ()}
    assert bool(lacks(**{**bare, **facts})) is missing


@pytest.mark.parametrize(
    ("settings", "scaler", "missing"),
    [
        ({}, False, False),
        ({"precision": "fp16"}, False, True),
        ({"precision": "FP16"}, False, True),
        ({"precision": "fp16"}, True, False),
        ({"precision": "bf16"}, False, False),
        ({"fp16": True}, False, True),
        ({"fp16": False}, False, False),
        ({"use_fp16": True}, False, True),
        ({"fp16__enabled": True}, False, True),
        ({"bf16__enabled": True}, False, False),
        ({"trainer__half": True}, False, True),
        ({"trainer__other": True}, False, False),
        ({"lr": 16.0}, False, False),
    ],
)
def test_a_scaler_where_half_is_configured(settings, scaler, missing):
    found = lacks(settings, scaler=scaler)
    assert found == ([("a.pt holds no GradScaler state", Severity.WARNING)] if missing else [])


# -- CKPT006 ---------------------------------------------------------------------------------------


def rates(groups, settings, *, schedulers=(), **knobs):
    facts = (OptimizerFacts("optimizer", tuple(groups)),)
    found = CheckpointOverridesRate(**knobs).in_checkpoint(
        table(scan(optimizers=facts, schedulers=tuple(schedulers)), **settings)
    )
    return [each.message for each in found]


@pytest.mark.parametrize(
    ("groups", "settings", "found"),
    [
        ([{"lr": 0.1}], {"lr": 0.1}, 0),
        ([{"lr": 0.1}], {"lr": 0.10005}, 0),  # within the tolerance
        ([{"lr": 0.1}], {"lr": 0.0989}, 1),
        ([{"lr": 0.1}], {"lr": 0.2}, 0),  # it may have come down by hand
        ([{"lr": 0.1, "initial_lr": 0.1}], {"lr": 0.2}, 1),
        ([{"lr": 0.05, "initial_lr": 0.1}], {"lr": 0.1}, 0),
        ([{"lr": 0.1}, {"lr": 0.3}], {"lr": 0.3}, 0),
        ([{"lr": 0.1}], {"lr": 0.01, "model__lr": 0.1}, 0),
        ([{"lr": 0.1}], {"batch": 0.01}, 0),
        ([{"lr": 0.1}], {"lr": "0.01"}, 0),
        ([{"momentum": 0.9}], {"lr": 0.01}, 0),
        ([{"lr": 0.1, "max_lr": 0.4}], {"max_lr": 0.4}, 0),
        ([{"lr": 0.1, "max_lr": 0.4}], {"max_lr": 0.5}, 1),
        ([{"lr": 0.1, "max_lr": 0.4}], {"peak_lr": 0.5, "lr": 0.4}, 1),
        ([{"lr": 0.1}], {"max_lr": 0.05}, 1),
        ([], {"lr": 0.1}, 0),
    ],
)
def test_rates_that_come_back(groups, settings, found):
    assert len(rates(groups, settings)) == found


def test_the_base_of_a_scheduler_is_a_rate_it_was_made_with():
    scheduler = SchedulerFacts("scheduler", base=(0.2,))
    assert rates([{"lr": 0.1}], {"lr": 0.2}, schedulers=[scheduler]) == []
    (said,) = rates([{"lr": 0.1}], {"lr": 0.3}, schedulers=[scheduler])
    assert "a rate of 0.2, and now lr is 0.3" in said


def test_four_of_the_old_rates_are_named():
    groups = [{"lr": rate} for rate in (0.5, 0.1, 0.2, 0.3, 0.4)]
    (said,) = rates(groups, {"lr": 0.01})
    assert "a rate of 0.1, 0.2, 0.3, 0.4, and" in said


@pytest.mark.parametrize(
    ("total", "settings", "found"),
    [
        (100, {"max_steps": 200.0}, 1),
        (200, {"max_steps": 200.0}, 0),
        (None, {"max_steps": 200.0}, 0),
        (100, {"lr": 1.0}, 0),
        (100, {"max_steps": 200.0, "total_steps": 300.0}, 0),
        (100, {"max_steps": 200.0, "total_steps": 200.0}, 1),
        (100, {"max_steps": "200"}, 0),
    ],
)
def test_a_schedule_that_ends_early(total, settings, found):
    scheduler = SchedulerFacts("scheduler", total=total, position=7)
    assert len(rates([], settings, schedulers=[scheduler])) == found


def test_without_settings_nothing_is_compared():
    with pytest.raises(NotLooked):
        list(CheckpointOverridesRate().in_checkpoint(table(scan())))


# -- CKPT007 ---------------------------------------------------------------------------------------


def moment(number, high, kind="exp_avg_sq", tally=None, owner="optimizer"):
    counted = tally or Tally(4, low=0.0, high=high)
    name = f"{owner}.state[{number}].{kind}"
    return TensorFacts(name, "float32", (4,), "optimizer", counted, ("state", number, kind))


def spoiled(*tensors, steps=20, **knobs):
    facts = OptimizerFacts("optimizer", ({"lr": 0.1},), steps)
    return list(
        OptimizerMomentsSpoiled(**knobs).detect(table(scan(tensors=tensors, optimizers=(facts,))))
    )


@pytest.mark.parametrize(("steps", "n"), [(9, 0), (10, 1), (None, 0)])
def test_a_moment_of_zero_says_something_after_ten_steps(steps, n):
    assert len(spoiled(moment(0, 0.0), moment(1, 1.0), steps=steps)) == n


@pytest.mark.parametrize(
    "innocent",
    [
        moment(0, 0.0, "exp_avg"),
        moment(0, 0.0, owner="other"),
        moment(0, 0.0, tally=Tally(0)),
        moment(0, 0.0, tally=Tally(4, nan=1, low=0.0, high=0.0)),
        moment(0, 1e-12),
        TensorFacts("optimizer.state[0].exp_avg_sq", "int8", (4,), "optimizer", None, ("x",)),
    ],
)
def test_what_is_no_dead_moment(innocent):
    assert spoiled(innocent, moment(1, 1.0)) == []


def test_dead_moments_are_counted():
    one, more = spoiled(moment(0, 0.0))[0], spoiled(moment(0, 0.0), moment(1, 0.0))[0]
    assert one.message == (
        "a.pt: optimizer.state[0].exp_avg_sq is zero after 20 steps: no gradient reached it"
    )
    assert "(and 1 more of 2)" in more.message and len(more.facts) == 3


@pytest.mark.parametrize(
    ("high", "others", "n"),
    [
        (1.1e12, (1.0, 1.0), 1),
        (1.0e12, (1.0, 1.0), 0),  # a million times is the border, of the root
        (1.1e12, (1.0,), 0),  # too few for a median
        (1.1e12, (0.0, 1.0), 0),
        (1.1e12, (1.0, 1.0, 4.0), 0),  # half way to the next, the median is 1.5
    ],
)
def test_a_gradient_that_is_remembered(high, others, n):
    tensors = [moment(9, high), *(moment(at, each) for at, each in enumerate(others))]
    found = [each for each in spoiled(*tensors, steps=0) if "what is left" in each.message]
    assert len(found) == n


def test_fifty_tensors_are_facts():
    (found,) = spoiled(*(moment(number, 0.0) for number in range(60)))
    assert len(found.facts) == 51


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (CheckpointRefused().detect, {"refused": "its pickle names os.system"}),
        (CheckpointCannotResume().in_checkpoint, {**WHOLE, "rng": False}),
    ],
)
def test_a_file_behind_a_good_one_is_looked_at(rule, bad):
    good = scan(**WHOLE)
    assert len(list(rule(table(good, scan(**bad), good, scan(**bad))))) == 2


def test_damage_and_a_short_schedule_behind_good_ones_are_told():
    damaged = table(scan(), scan(damage=("cut",)), scan(), scan(damage=("cut",)))
    assert len(list(CheckpointDamaged().in_checkpoint(damaged))) == 2
    schedulers = tuple(SchedulerFacts("s", total=total) for total in (None, 200, 100))
    assert len(rates([], {"max_steps": 200.0}, schedulers=schedulers)) == 1
