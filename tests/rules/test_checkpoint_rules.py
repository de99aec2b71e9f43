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
from auditor.evidence.scans import (
    ElementCounts,
    OptimizerFacts,
    Scan,
    SchedulerFacts,
    Setting,
    TensorFacts,
)
from auditor.model import Severity, Site
from auditor.recordings.schema.data import SaveRow
from auditor.rule import NotLooked
from tests.rules.asking import lines

WEIGHTS = TensorFacts("model.w", "float32", (2, 3), "model", ElementCounts(6, low=-1.0, high=1.0))
ADAM = OptimizerFacts("optimizer", ({"lr": 0.1},), 20)


def scan(**facts: Any) -> Scan:
    return Scan(**{"path": "/runs/a.pt", "format": "torch zip", "size": 9, **facts})


def table(*scans: Scan, **settings: Any) -> Checkpoints:
    given = tuple(Setting(name.replace("__", "."), value) for name, value in settings.items())
    return Checkpoints(tuple(Checkpoint(each) for each in scans), given)


# -- CKPT001 ---------------------------------------------------------------------------------------


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
            us=1e3 * (step + 1),
            path=path,
            replaced=over,
            bytes=None,
        )
        for step, (site, path, over) in enumerate(each)
    )
    return lines(*made, sites=sites, of=8, kind=SaveRow)


def test_the_only_checkpoint_is_written_over():
    over = [(HERE, "a.pt", False), (HERE, "a.pt", True), (HERE, "a.pt", True)]
    (found,) = CheckpointDamaged().detect(saves(*over))
    assert found.site == HERE and "during the 3 ms of a write has no checkpoint" in found.message
    assert (found.steps, found.per_step) == (3, 3 / 8)


A, B = (HERE, "a.pt", True), (HERE, "b.pt", True)


@pytest.mark.parametrize(
    "each",
    [
        [],
        [(HERE, "a.pt", False), A],
        [A, B],
        [(HERE, None, True), (HERE, None, True)],
        [A, A, (THERE, "b.pt", False)],
    ],
)
def test_a_run_with_another_checkpoint_says_nothing(each):
    with pytest.raises(NotLooked):
        list(CheckpointDamaged().detect(saves(*each)))


@pytest.mark.parametrize(
    ("damage", "end"), [((), None), (("cut",), "damaged: cut"), (("cut", "b"), "cut; and 1 more")]
)
def test_damage(damage, end):
    good, rule = scan(path="/runs/b.pt", tensors=(WEIGHTS,)), CheckpointDamaged()
    found = list(rule.in_checkpoint(table(good, scan(damage=damage), good, scan(damage=damage))))
    assert [each.message.endswith(end) for each in found] == [True, True][: 2 * bool(damage)]
    for each in found:
        assert rule.remedy(each).text.startswith("The latest good one is b.pt. Save to")


# -- CKPT005 ---------------------------------------------------------------------------------------

WHOLE = {"tensors": (WEIGHTS,), "optimizers": (ADAM,)}
WHOLE |= {"schedulers": (SchedulerFacts("scheduler", position=3),), "scaler": True, "rng": True}
WHOLE |= {"progress": {"step": 3}}


def lacks(settings=None, **facts):
    given = table(scan(**{**WHOLE, **facts}), **(settings or {}))
    found = CheckpointCannotResume().in_checkpoint(given)
    return [(each.message.partition(": ")[0], each.severity) for each in found]


DRIVEN = {"optimizers": (OptimizerFacts("optimizer", ({"lr": 0.1, "initial_lr": 0.2},), 20),)}
BARE = {"optimizers": (OptimizerFacts("o", ({"lr": 0.1},)),), "schedulers": (), "progress": {}}
FIRST, UNKNOWN = SchedulerFacts("s", position=0), SchedulerFacts("s")


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({}, ""),
        ({"tensors": ()}, ""),
        ({"tensors": (), "rng": False}, ""),
        ({"damage": ("cut",), "rng": False}, ""),
        ({"optimizers": (), "schedulers": (), "scaler": False, "rng": False}, ""),
        ({"optimizers": ()}, "optimizer state"),
        ({"optimizers": (), "schedulers": ()}, "optimizer state"),
        ({"optimizers": (), "scaler": False}, "optimizer state"),
        (DRIVEN | {"schedulers": ()}, "scheduler"),
        (DRIVEN, ""),
        ({"schedulers": ()}, ""),
        ({"rng": False}, "random states"),
        ({"progress": {}}, ""),
        (DRIVEN | {"schedulers": (), "rng": False}, "scheduler and no random states"),
        (BARE, "step or epoch"),
        (BARE | {"progress": {"epoch": 1}}, ""),
        (BARE | {"progress": {"step": 0}}, ""),
        (BARE | {"schedulers": (FIRST,)}, ""),
        (BARE | {"schedulers": (UNKNOWN,)}, "step or epoch"),
        (BARE | {"schedulers": (UNKNOWN, FIRST)}, ""),
    ],
)
def test_what_a_checkpoint_lacks(facts, missing):
    severity = Severity.NOTE if missing == "random states" else Severity.WARNING
    assert lacks(**facts) == [(f"a.pt holds no {missing}", severity)][: bool(missing)]


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


def test_the_base_of_a_scheduler_is_a_rate_it_was_made_with_and_four_are_named():
    made = {"schedulers": [SchedulerFacts("scheduler", base=(0.2,))]}
    assert rates([{"lr": 0.1}], {"lr": 0.2}, **made) == []
    (said,) = rates([{"lr": 0.1}], {"lr": 0.3}, **made)
    assert "a rate of 0.2, and now lr is 0.3" in said
    (said,) = rates([{"lr": rate} for rate in (0.5, 0.1, 0.2, 0.3, 0.4)], {"lr": 0.01})
    assert "a rate of 0.1, 0.2, 0.3, 0.4, and" in said


# -- CKPT007 ---------------------------------------------------------------------------------------


def moment(number, high, kind="exp_avg_sq", tally=None, owner="optimizer"):
    counted = tally or ElementCounts(4, low=0.0, high=high)
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


def test_dead_moments_are_counted():
    (one,) = spoiled(moment(0, 0.0))
    assert one.message == (
        "a.pt: optimizer.state[0].exp_avg_sq is zero after 20 steps: no gradient reached it"
    )
    (more,) = spoiled(*(moment(number, 0.0) for number in range(60)))
    assert "(and 59 more of 60)" in more.message and len(more.facts) == 51


@pytest.mark.parametrize(
    "innocent",
    [
        moment(0, 0.0, "exp_avg"),
        moment(0, 0.0, owner="other"),
        moment(0, 0.0, tally=ElementCounts(0)),
        moment(0, 0.0, tally=ElementCounts(4, nan=1, low=0.0, high=0.0)),
        moment(0, 1e-12),
        TensorFacts("optimizer.state[0].exp_avg_sq", "int8", (4,), "optimizer", None, ("x",)),
    ],
)
def test_what_is_no_dead_moment(innocent):
    assert spoiled(innocent, moment(1, 1.0)) == []


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
