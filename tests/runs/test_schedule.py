"""The schedule as a value: which passes a run takes, their steps, and why it ends."""

from collections.abc import Callable
from typing import Any

import pytest

from auditor.cycles import prolonged
from auditor.model.devices import CPU, CUDA, NULL, SHADOW
from auditor.runs.plan import Change, Drill, Passes, Plan, Replay, Trial, UntilOom
from auditor.runs.repeat import Repeat
from auditor.runs.schedule import LONG_STEPS, Schedule, Stats, passes_of, share_out

GPU = CUDA
WATCHED = frozenset({"loud", "leaner", "numbers", "gradients", "values"})
REHEARSAL = {"loud": 12, "leaner": 5, "numbers": 3}
MEASURED = {"warmup": 5, "quiet": 50, "trace": 5, "loud": 20, "numbers": 3, "gradients": 2}
Shows = Callable[[Stats], object]


def course(
    device=CPU,
    shows=lambda stats: None,
    *,
    word="auto",
    watched=WATCHED,
    us=lambda at: 1e3,
    step_s=0.001,
    steps=50,
    warmup=5,
    **more,
):
    """Steps of each pass, and what was said; after each step the run has shown what ``shows`` says."""
    said: list[str] = []
    plan = Plan("t:step", (), steps, warmup, word, "folder", (), **more)
    stats = Stats(plan.overhead_s, said.append)
    schedule = Schedule(plan, stats)
    schedule.queue = passes_of(plan, device, watched)
    assert all(each.steps for each in schedule.planned)
    while not schedule.done:
        at = schedule.next() if schedule.between else stats.now
        at.seconds += step_s
        at.us.append(us(at))
        shows(stats)
        schedule.step_done()
    return {each.name: each.done for each in stats.passes}, said


def shown(**fields):
    return lambda stats: [setattr(stats, name, value) for name, value in fields.items()]


def alike(most):
    return lambda stats: setattr(stats, "alike", min(most, stats.now.done + 1))


def compiled(stats):
    stats.now.compiled = True


def bursts(*steps):
    return lambda stats: stats.bursts.update(
        {"line": {step for step in steps if step <= stats.now.done}}
    )


def without(*names, **more):
    return {name: n for name, n in {**MEASURED, **more}.items() if name not in names}


def case(name, passes, shows=lambda stats: None, device=CPU, **more):
    return pytest.param(device, shows, more, passes, id=name)


def every(distance):
    return lambda at: 1e3 if at.done % distance else 9e3


def asking(done):
    return lambda stats: setattr(stats, "asked_on", lambda: stats.now.done < done)


def slow_eager(stats):
    compiled(stats)
    stats.now.seconds = stats.now.done * (9.9 if stats.now.name == "eager_held" else 1.0)


@pytest.mark.parametrize(
    ("device", "shows", "more", "passes"),
    [
        case("as a rule", MEASURED),
        case("on a GPU", without(memory=12), device=GPU),
        case("without a trace", without("trace"), purpose=Passes(trace=0)),
        case("not asked for", without("loud", "numbers", "gradients"), watched=frozenset()),
        case("no warm-up", without("warmup"), warmup=0),
        case("steps alike", without(loud=12), alike(12)),
        case("almost alike", MEASURED, alike(11)),
        case(
            "alike, and a probe asks on",
            MEASURED | {"numbers": 23},
            shown(alike=99, asked_on=lambda: True),
        ),
        case("few steps", without(quiet=7, loud=7), steps=7),
        case("own profiler", without("trace"), shown(profiled=True)),
        case("trace full", without(trace=2), lambda s: setattr(s, "full", s.now.done == 1)),
        case("anomaly mode", without(anomaly_off=20), shown(anomaly=True)),
        case("few of it", without(quiet=7, anomaly_off=7, loud=7), shown(anomaly=True), steps=7),
        case("compiled", without(eager_held=50), compiled),
        case("slow eager", without(eager_held=16), slow_eager, overhead_s=1e9),
        case(
            "fast eager",
            without(eager_held=50, compiled_again=50),
            compiled,
            us=lambda at: 9.0 if at.name == "eager_held" else 10.0,
        ),
        case("probes ask on", without(numbers=7), asking(7)),
        case("ranks", MEASURED, shown(alike=99, anomaly=True), world_size=2, step_s=60.0),
        case("a cycle", without(loud=24), alike(99), us=every(12)),
        case("a cycle in sight", MEASURED, alike(99), us=every(10)),
        case("a long cycle", without(quiet=31), us=every(16), steps=31),
        case("replay", {"replay": 8}, purpose=Replay(7, 5)),
        case("drill", {"drill": 50}, purpose=Drill()),
        case("reproduce", {"reproduce": 50}, purpose=Repeat()),
        case("until it is full", {"memory": 4}, device=GPU, purpose=UntilOom(4)),
        case("plan", {"warmup": 5, "loud": 50}, device=SHADOW, purpose=Change()),
        case("trial", {"warmup": 5, "quiet": 50}, alike(99), purpose=Trial(1), step_s=60.0),
        case("GPU", {"warmup": 5, "quiet": 50, "loud": 3}, alike(99), GPU, purpose=Trial(1)),
        case("rehearsed", {"loud": 12}, alike(99), SHADOW, purpose=Trial(1), steps=12),
        case("null", {"loud": 9, "memory": 3}, device=NULL, word="null", steps=12, step_s=60.0),
    ],
)
def test_which_passes_a_run_takes(device, shows, more, passes):
    assert course(device, shows, **more)[0] == passes


@pytest.mark.parametrize(
    ("device", "shows", "more", "passes"),
    [
        case("as a rule", REHEARSAL, alike(99)),
        case("quick", {**REHEARSAL, "loud": 20}, alike(99), step_s=0.15),
        case("instant", {**REHEARSAL, "loud": 51}, alike(99), step_s=0.019),
        case("nearly instant", {**REHEARSAL, "loud": 48}, alike(99), step_s=0.021),
        case("small", {"loud": 12, "numbers": 3}, shown(peak_counts=lambda: False)),
        case("not asked for", {"loud": 12}, watched=frozenset()),
        case("alone", {**REHEARSAL, "values": 9}, purpose=Passes(values=9), steps=12),
        case("unused", {"loud": 1}, shown(unused=True), purpose=Passes(values=38)),
        case("a burst again", {**REHEARSAL, "loud": 17}, bursts(0, 16)),
        case("bursts in time", REHEARSAL, bursts(2, 5)),
        case("one burst", {**REHEARSAL, "loud": 32}, bursts(0)),
    ],
)
def test_a_rehearsal_is_watched_from_its_first_step_on(device, shows, more, passes):
    more = {"purpose": Passes(trace=0, loud=12), "step_s": 0.25, **more}
    assert course(SHADOW, shows, word="rehearse", **more) == (passes, [])


@pytest.mark.parametrize(
    ("device", "step_s", "more", "passes"),
    [
        (CPU, 0.74, {}, {}),  # 20 steps of 0.75 s are 15 s, a quarter of a minute
        (CPU, 0.8, {}, {"loud": 18}),
        (CPU, 1.4, {}, {"trace": 4, "loud": 10}),
        (CPU, 5.5, {}, {"trace": 1, "loud": 8, "numbers": 2}),
        (GPU, 30.0, {}, {"trace": 1, "loud": 8, "numbers": 1, "memory": 3}),
        (CPU, 2.5, {"overhead_s": 205.0}, {}),
        (SHADOW, 0.5, {}, {}),
        (SHADOW, 2.4, {}, {"loud": 7}),
        (SHADOW, 2.5, {}, {"loud": 7, "leaner": 0}),
        (SHADOW, 9.0, {}, {"loud": 6, "leaner": 0, "numbers": 1, "values": 6}),
    ],
)
def test_passes_of_long_steps_end_with_their_share_of_the_time(device, step_s, more, passes):
    whole = without(**{"memory": 12} if device is GPU else {})
    if device is SHADOW:
        whole = {"loud": 12, "leaner": 5, "numbers": 3, "values": 24}
        more = {"purpose": Passes(loud=12, values=24)}
    taken, said = course(device, step_s=step_s, **more)
    assert taken == {name: n for name, n in {**whole, **passes}.items() if n}
    assert set(said) == ({LONG_STEPS} if taken != whole else set())


def test_what_the_reader_must_know_is_said():
    assert course(shows=alike(99), us=lambda at: 1e3 if at.done % 12 else 9e3)[1] == [prolonged(24)]
    assert "runs torch.profiler itself" in course(shows=shown(profiled=True))[1][0]
    full = shown(half_full=lambda: True)
    passes, (text,) = course(shows=lambda stats: (compiled(stats), full(stats)))
    assert "more memory" in text and "eager_held" not in passes


@pytest.mark.parametrize(
    ("device", "fit", "passes"),
    [
        (CPU, 6, {"warmup": 1, "quiet": 1, "loud": 3, "numbers": 1}),
        (CPU, 22, {"warmup": 2, "quiet": 3, "trace": 1, "loud": 11, "numbers": 3, "gradients": 2}),
        (CPU, 40, {"warmup": 4, "quiet": 14, "trace": 5, "loud": 12, "numbers": 3, "gradients": 2}),
        (GPU, 85, {**MEASURED, "memory": 12, "quiet": 38, "loud": 20}),
        (CPU, 85, MEASURED),
        (SHADOW, 12, {"loud": 9, "numbers": 3}),
        (SHADOW, 20, {"loud": 12, "leaner": 5, "numbers": 3}),
        (SHADOW, 19, {"loud": 12, "numbers": 3, "values": 4}),
        (SHADOW, 58, {"loud": 12, "leaner": 5, "numbers": 3, "values": 38}),
    ],
)
def test_a_target_that_ends_takes_causes_before_long_timing(device, fit, passes):
    more: dict[str, Any] = {"purpose": Passes(loud=12, values=38)} if device is SHADOW else {}
    assert course(device, bursts(0), fit=fit, **more)[0] == passes


def test_where_steps_are_counted_one_more_pass_takes_half_of_the_diagnostic_ones():
    passes, _ = course(shows=shown(anomaly=True), fit=40)
    assert (passes["anomaly_off"], passes["loud"], sum(passes.values())) == (6, 6, 40)


def test_no_target_is_asked_for_more_steps_than_it_has():
    for total in range(1, 150):
        passes = passes_of(Plan("t", (), 50, 5, "auto", "", ()), GPU, WATCHED)
        share_out(total, passes)
        assert sum(each.most for each in passes if each.usual) <= total
