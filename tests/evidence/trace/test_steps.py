"""Steps of a trace: shares of a part, with and without the first, and what is needed to judge."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from auditor.evidence.trace.facts import (
    OPTIMIZER,
    PROFILER,
    TraceStep,
    TraceSteps,
    _loader,
    devices,
)
from auditor.rule import NotLooked


def steps(*loads, us=100.0, **more):
    facts = {"source": PROFILER, "marked": True, "device": True, **more}
    return TraceSteps(tuple(TraceStep(us, loader_us=load) for load in loads), **facts)


@pytest.mark.parametrize(
    ("loads", "share", "mean", "steady"),
    [
        ((80.0, 10.0, 30.0), 0.4, 40.0, 0.2),
        ((80.0, 10.0), 0.45, 45.0, 0.45),  # of two steps none is left out
        ((80.0,), 0.8, 80.0, 0.8),
        ((), 0.0, 0.0, 0.0),
    ],
)
def test_shares_of_a_part(loads, share, mean, steady):
    table = steps(*loads)
    assert (table.share("loader_us"), table.mean("loader_us")) == (share, mean)
    assert table.steady("loader_us") == steady


@pytest.mark.parametrize(
    ("loads", "recurs", "above"),
    [
        ((50.0, 50.0, 50.0), True, 3),
        ((50.0, 50.0, 49.0), False, 2),
        ((50.0, 49.0, 50.0), False, 2),
        ((0.0, 50.0, 0.0, 90.0), True, 2),
        ((90.0,), False, 1),
    ],
)
def test_what_recurs_after_the_first_step(loads, recurs, above):
    table = steps(*loads)
    assert table.recurs("loader_us", 0.5) is recurs
    assert table.steps_above("loader_us", 0.5) == above


@pytest.mark.parametrize(
    ("number", "source", "certain"),
    [(3, PROFILER, True), (2, PROFILER, False), (3, OPTIMIZER, False)],
)
def test_three_steps_of_the_profilers_are_certain(number, source, certain):
    assert steps(*[1.0] * number, source=source).certain is certain


def test_what_is_needed():
    with pytest.raises(NotLooked, match="marks no steps"):
        steps(1.0, marked=False).need_steps()
    with pytest.raises(NotLooked, match="holds 1 step, 2 are needed"):
        steps(1.0).need_steps(2)
    steps(1.0).need_steps()
    with pytest.raises(NotLooked, match="holds 0 steps, 1 are needed"):
        steps().need_steps()
    with pytest.raises(NotLooked, match="none of its work"):
        replace(steps(), device_missing=True).need_a_device()
    with pytest.raises(NotLooked, match="shows no GPU"):
        replace(steps(), device=False).need_a_device()
    steps().need_a_device()


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "_SingleProcessDataLoaderIter"),
        ("enumerate(DataPipe)#Own", "Own"),
        ("loading", "loading"),
    ],
)  # fmt: skip
def test_the_loaders_iterator(name, loader):
    assert _loader((name, "another")) == loader


@pytest.mark.parametrize(
    ("names", "working", "said"),
    [
        (("A", "", "B", "A"), 0, ("A", "B")),
        ((), 1, ("a GPU that the trace does not name",)),
        (("",), 2, ("2 GPUs without names",)),
        ((), 0, ()),
    ],
)
def test_the_names_of_devices(names, working, said):
    info = SimpleNamespace(devices=[SimpleNamespace(name=name) for name in names])
    line = SimpleNamespace(devices=[None] * working, trace=SimpleNamespace(info=info))
    assert devices(line) == said
