"""The rules that traces answer at the edges of their thresholds, on tables made by hand: no trace,
no numpy.
"""

from dataclasses import replace

import pytest
from auditor.rules.amp.precision import (
    FP32,
    HALF,
    TF32,
    AwkwardProductSizes,
    CastThrash,
    NoMixedPrecision,
    Precision,
    Tf32Off,
)
from auditor.rules.cfg.autotuning import Autotuning, AutotuningEveryStep
from auditor.rules.cfg.modes import LayoutTransposedAroundConvolutions
from auditor.rules.dist.communication import (
    BackendOfTheHost,
    ExposedCommunication,
    Job,
    RankKeepsOthersWaiting,
)
from auditor.rules.kern.device_idle import (
    DeviceIdleInStep,
    HostLeavesDeviceIdle,
    LaunchBound,
    UnfusedAttention,
)
from auditor.rules.opt.optimizer_kernels import FusedOptimizerNotUsed, OptimizerStepsOneByOne
from auditor.rules.opt.rows import SingleTensorStepRow

from auditor.evidence.recorded.step_pattern import StepPattern
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.trace.idle import DEVICE, HOST, INPUT, LAUNCHING, DeviceIdle, Gap
from auditor.evidence.trace.patterns import OptimizerCalls, Structure, Tuning
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Rank, Severity, Site
from auditor.rule import NotLooked
from tests.rules.asking import ask, loud, rows

ERROR, WARNING, NOTE = Severity.ERROR, Severity.WARNING, Severity.NOTE
PLACE = Site("train.py", 12, "train")


def says(rule, *tables):
    """Severity of the one finding, None without any."""
    found = list(ask(rule, *tables))
    assert len(found) <= 1
    return (found[0].severity or rule.severity) if found else None


def idle(share, cause, **more):
    facts = {"steps": 4, "marked": True, "window_us": 4000.0, "idle_us": ((cause, 4000 * share),)}
    facts |= {"kernels": 100, "short": 90, "gap_steps": 4}
    return DeviceIdle(**facts, **more)


GAPS = (Gap(0.0, 800.0, "aten::sort"),)


def test_queued_work_that_did_not_start_is_named_with_its_call():
    """As in a recording in which cudaGraphLaunch had returned 130 ms before."""
    waiting = Gap(2000.0, 12_000.0, api="cudaGraphLaunch", launched_us=130_000.0)
    short = Gap(0.0, 99.0, api="cudaLaunchKernel")
    (found,) = ask(DeviceIdleInStep(), idle(0.5, DEVICE, queued=(waiting, short)))
    assert (
        "mostly (50%) because work was queued but did not start (the longest gap is 12 ms: "
        "cudaGraphLaunch had returned 130 ms before"
    ) in found.message
    said = "12 ms, queued by cudaGraphLaunch, which returned 130 ms before the work began"
    assert found.facts[-1] == ("gap at 2 ms", said)
    assert "what the queued work waits for" in DeviceIdleInStep().remedy(found).text


def test_the_optimizers_part_of_slow_launches_is_priced_once():
    (found,) = ask(LaunchBound(), idle(0.2, LAUNCHING), replace(ONE_BY_ONE, idle_us_per_step=50.0))
    assert found.lost_us_per_step == pytest.approx(200.0 - 50.0)


ONE_BY_ONE = OptimizerCalls(("SGD",), 4, 4, True, 50.0, 0, 0, 0.1, 75.0)


STRUCTURE = Structure(steps=4, marked=True, kernel_us=1000.0)


@pytest.mark.parametrize(
    ("seen", "steps", "expected"),
    [
        ({0, 1, 2, 3}, 4, WARNING),
        ({2, 3}, 4, WARNING),
        ({0, 1}, 4, None),
        ({3}, 4, None),
        ({0, 1}, 2, None),
        (set(), 4, None),
    ],
)
def test_autotuning(seen, steps, expected):
    tuning = Tuning(frozenset(seen), 12, 800.0) if seen else None
    table = replace(STRUCTURE, steps=steps, tuning=tuning)
    assert says(AutotuningEveryStep(), table) is expected
    assert says(AutotuningEveryStep(), Autotuning(structure=table)) is expected


@pytest.mark.parametrize(
    ("seen", "steps", "benchmark", "expected"),
    [
        (range(8), 8, True, WARNING),
        (range(8), 8, False, None),
        ((0, 2, 3, 5, 6, 7), 8, True, WARNING),
        ((0, 3, 5, 6, 7), 8, True, None),  # too few of all
        ((0, 1, 2, 3, 4, 6), 8, True, None),  # too few of the later half
        ((0, 1), 2, True, None),
    ],
)
def test_sizes_that_are_new_to_the_end(seen, steps, benchmark, expected):
    pattern = StepPattern(tuple(seen), steps)
    new = Autotuning(None, pattern, 9, Site("train.py", 3), (2, 3), benchmark)
    assert says(AutotuningEveryStep(), new) is expected


def precision(capability=7, busy=1.0, awkward=0.0, cast=(0, 0.0), **us):
    names = {"fp32": FP32, "tf32": TF32, "half": HALF}
    times = tuple((names[name], time) for name, time in us.items())
    facts = {"steps": 4, "marked": True, "busy": busy, "kernel_us": 1000.0}
    facts |= {"shapes": awkward > 0, "awkward": (("64 x 7", awkward),)}
    facts |= {"casts": cast[0], "cast_us": cast[1]}
    return Precision("card", capability, products_us=times, matmul_us=times, **facts)


def attention(number, us, **more):
    facts = {"attentions": number, "attention_us": us, "attention_at": PLACE}
    return replace(STRUCTURE, **facts, **more)


def transposed(us):
    return replace(STRUCTURE, transposes=(("nchwToNhwcKernel", us),))


def alone(*calls, steps=4, **knobs):
    """What is said of rehearsed calls (step, calls, operators, line that made it, class)."""
    sites = [Site("train.py", line) for line in (12, 3, 4)]
    given = (
        SingleTensorStepRow(step=step, at=0, made_at=made, name=name, n=n, operators=operators)
        for step, n, operators, made, name in calls
    )
    return list(ask(OptimizerStepsOneByOne(**knobs), rows(*given, sites=sites), loud(steps)))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(0, 2, 60, 1, "Adam"), (1, 1, 60, 1, "Adam")], [(3, 0.75, 2)]),
        ([(0, 2, 59, 1, "Adam"), (1, 1, 60, 1, "Adam")], []),
        ([(0, 1, 40, 1, "Adam")], []),  # seldom
        ([(0, 1, 40, 1, "Adam"), (4, 1, 40, 1, "Adam")], []),  # did not complete
        ([(0, 1, 40, 1, "Adam"), (1, 1, 40, 2, "Adam")], []),
        ([(0, 1, 40, None, "Adam"), (1, 1, 40, None, "SGD")], []),
        ([(0, 1, 40, None, "Adam"), (1, 1, 40, None, "Adam")], [(12, 0.5, 2)]),
    ],
)
def test_a_rehearsed_optimizer_by_the_line_that_made_it_else_that_steps_it(calls, expected):
    found = alone(*calls, launches=40)
    assert [(each.site.line, each.per_step, each.steps) for each in found] == expected
    assert all(each.facts == (("steps at", "train.py:12"),) for each in found)


def test_a_rehearsed_optimizer_that_no_line_of_the_program_steps():
    given = SingleTensorStepRow(step=0, at=None, made_at=None, name="Adam", n=1, operators=99)
    many = rows(*[given] * 4, sites=())
    assert list(ask(OptimizerStepsOneByOne(launches=40), many, loud(1))) == []


@pytest.mark.parametrize(("marked", "idle_us", "lost"), [(True, 75.0, 75.0), (True, 0.0, None)])
def test_single_launches_have_a_price_where_the_device_waited(marked, idle_us, lost):
    table = replace(ONE_BY_ONE, marked=marked, idle_us_per_step=idle_us)
    (found,) = OptimizerStepsOneByOne(launches=10).in_trace(table, Source(), Configs())
    assert (found.lost_us_per_step, found.steps) == (lost, 4)


def test_launches_are_not_counted_by_step_where_no_step_is_marked():
    often = []
    for marked in (True, False):
        table = replace(idle(0.2, LAUNCHING), marked=marked)
        (found,) = ask(LaunchBound(), table, FOREACH)
        often.append((found.per_step, found.steps))
    assert often == [(25.0, 4), (0.0, 0)]


FOREACH = OptimizerCalls(("Adam",), 4, 4, True, 12.0, foreach=12, host_share=0.05)


JOB = Job("nccl", 0, 8, 4, True, 4000.0, 100, (("ncclKernel", 4),), 4, 500.0, 400.0, of_span=0.1)
GLOO = replace(JOB, backend="gloo", collectives=())
ROW = Rank(0, "a", "", "", 4, 1000.0, 900.0, 500.0, 100.0, 100.0, 0.0, 0.0, None)
RANKS = Ranks((ROW, replace(ROW, rank=1)), late=1, last=2, shared=6, waited_us=100.0, clocks_us=1.0)


@pytest.mark.parametrize(
    ("steps", "expected"), [(2, (NOTE, None, "none")), (3, (None, 100.0, "estimated"))]
)
def test_a_straggler_has_a_price_from_three_steps_on(steps, expected):
    ranks = replace(RANKS, rows=tuple(replace(row, steps=steps) for row in RANKS.rows))
    (found,) = ask(RankKeepsOthersWaiting(), ranks)
    assert (found.severity, found.lost_us_per_step, found.basis) == expected


def test_nobody_is_late_without_others_or_without_collectives():
    with pytest.raises(NotLooked, match="folder"):
        says(RankKeepsOthersWaiting(), Ranks((ROW,), late=0))
    with pytest.raises(NotLooked, match="share no collective"):
        says(RankKeepsOthersWaiting(), replace(RANKS, late=None))


EDGES = {
    UnfusedAttention: [
        (attention(1, 100.0), WARNING),
        (attention(1, 99.0), None),
        (attention(0, 500.0), None),
        (attention(1, 100.0, marked=False), NOTE),
    ],
    LayoutTransposedAroundConvolutions: [
        (transposed(50.0), WARNING),
        (transposed(49.0), None),
        (transposed(0.0), None),
    ],
    AwkwardProductSizes: [(precision(awkward=100.0), NOTE), (precision(awkward=99.0), None)],
    CastThrash: [
        (precision(half=1.0, cast=(10, 100.0)), WARNING),
        (precision(half=1.0, cast=(10, 99.0)), None),
        (precision(half=1.0, cast=(9, 100.0)), None),
        (precision(half=0.0, cast=(10, 100.0)), None),
    ],
    DeviceIdleInStep: [
        (idle(0.29, DEVICE), None),
        (idle(0.3, DEVICE), WARNING),
        (idle(0.9, INPUT), NOTE),
        (idle(0.9, LAUNCHING), NOTE),
        (replace(idle(0.9, LAUNCHING), short=49), WARNING),
        (replace(idle(0.9, DEVICE), marked=False), NOTE),
        (replace(idle(0.9, DEVICE), kernels=19), NOTE),
        (replace(idle(0.9, DEVICE), kernels=0), None),
        (DeviceIdle(), None),
    ],
    HostLeavesDeviceIdle: [
        (idle(0.09, HOST, gaps=GAPS), None),
        (idle(0.1, HOST, gaps=GAPS), WARNING),
        (replace(idle(0.1, HOST, gaps=GAPS), gap_steps=2), WARNING),
        (replace(idle(0.1, HOST, gaps=GAPS), gap_steps=1), NOTE),
        (replace(idle(0.1, HOST, gaps=GAPS), marked=False), NOTE),
        (replace(idle(0.1, HOST, gaps=GAPS), kernels=19), NOTE),
        (idle(0.5, LAUNCHING, gaps=()), None),
    ],
    LaunchBound: [
        (idle(0.04, LAUNCHING), OptimizerCalls(), None),
        (idle(0.05, LAUNCHING), OptimizerCalls(), NOTE),
        (idle(0.15, LAUNCHING), OptimizerCalls(), WARNING),
        (replace(idle(0.15, LAUNCHING), short=49), OptimizerCalls(), NOTE),
        (idle(0.15, LAUNCHING), ONE_BY_ONE, NOTE),
        (idle(0.15, LAUNCHING), replace(ONE_BY_ONE, idle_us_per_step=74.0), WARNING),
        (idle(0.15, LAUNCHING), replace(ONE_BY_ONE, foreach=12), WARNING),
    ],
    NoMixedPrecision: [
        (precision(fp32=100.0), WARNING),
        (precision(fp32=99.0), None),
        (precision(capability=6, fp32=900.0), None),
        (precision(capability=8, fp32=900.0), NOTE),
        (precision(fp32=900.0, half=10.0), None),
        (precision(fp32=900.0, half=9.0), WARNING),
        (precision(fp32=500.0, busy=0.1), WARNING),
        (precision(fp32=500.0, busy=0.09), NOTE),
        (replace(precision(capability=0, fp32=900.0), amd=True), NOTE),
        (replace(precision(fp32=900.0), marked=False), NOTE),
        (precision(), None),
    ],
    Tf32Off: [
        (precision(capability=8, fp32=100.0), WARNING),
        (precision(capability=8, fp32=99.0), None),
        (precision(capability=7, fp32=900.0), None),
        (precision(capability=8, fp32=900.0, tf32=1.0), None),
        (precision(capability=8, fp32=100.0, busy=0.49), NOTE),
        (replace(precision(capability=9, fp32=900.0), amd=True), None),
    ],
    OptimizerStepsOneByOne: [
        (ONE_BY_ONE, WARNING),
        (replace(ONE_BY_ONE, launches_per_call=49.9), None),
        (replace(ONE_BY_ONE, fused=1), None),
        (replace(ONE_BY_ONE, marked=False), NOTE),
        (OptimizerCalls(), None),
    ],
    FusedOptimizerNotUsed: [
        (FOREACH, NOTE),
        (replace(FOREACH, host_share=0.049), None),
        (replace(FOREACH, fused=1), None),
        (replace(FOREACH, foreach=0), None),
        (replace(FOREACH, names=("SGD",)), None),
        (replace(FOREACH, names=("Adam", "SGD")), None),
    ],
    ExposedCommunication: [
        (JOB, Ranks(), WARNING),
        (replace(JOB, exposed_us=399.0), Ranks(), NOTE),
        (replace(JOB, of_span=0.09), Ranks(), NOTE),
        (replace(JOB, exposed_us=399.0, of_span=0.09), Ranks(), None),
        (replace(JOB, exposed_us=1600.0), Ranks(), WARNING),
        (replace(JOB, exposed_us=1600.0), RANKS, ERROR),
        (replace(JOB, marked=False), RANKS, NOTE),
        (replace(JOB, collectives=()), RANKS, None),
    ],
    BackendOfTheHost: [
        (replace(GLOO, backend="gloo"), WARNING),
        (replace(GLOO, backend="mpi"), WARNING),
        (replace(GLOO, operators=0), NOTE),
        (replace(JOB, backend="gloo"), None),
        (replace(GLOO, kernels=0), None),
        (replace(GLOO, world_size=1), None),
        (replace(GLOO, backend=""), None),
    ],
    RankKeepsOthersWaiting: [
        (RANKS, WARNING),
        (replace(RANKS, waited_us=99.0), None),
        (replace(RANKS, waited_us=200.0), ERROR),
        (replace(RANKS, waited_us=199.0), WARNING),
        (replace(RANKS, last=1), None),
        (replace(RANKS, last=33, shared=100), None),
        (replace(RANKS, last=34, shared=100), WARNING),
        (replace(RANKS, last=33, shared=99), WARNING),  # exactly a third
        (replace(RANKS, clocks_us=99.0), WARNING),
        (replace(RANKS, clocks_us=100.0), None),
        (replace(RANKS, rows=tuple(replace(row, steps=2) for row in RANKS.rows)), NOTE),
    ],
}


@pytest.mark.parametrize(
    ("rule", "tables", "expected"),
    [(rule, tables, expected) for rule, rows in EDGES.items() for *tables, expected in rows],
)
def test_both_sides_of_a_threshold(rule, tables, expected):
    assert says(rule(), *tables) is expected
