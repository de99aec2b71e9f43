"""DATA007: which cause is named for a loader that the step waits for, and at which line."""

from dataclasses import replace

import pytest
from auditor.rules.data.data007_input_bound import LEAST_STARTS, StepWaitsForInput

from auditor.evidence.recorded.batches import Batch, Batches, Fetched, Loader, Loading, Seen
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Step
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.rule import NotLooked
from tests.rules.asking import ask

TEXT = """\
loader = DataLoader(data, num_workers=2)
def step():
    x = next(iter(loader))
def __getitem__(i):
    return json.load(open(path))[i]
"""
MADE, TAKEN, DEAR = (
    Site("train.py", line, "", TEXT.split("\n")[line - 1].strip()) for line in (1, 3, 5)
)
LOADER = Loader(0, TAKEN, MADE, workers=2, length=50, iter_at=TAKEN, persistent=False)


def found(loader=LOADER, *, made=(0,) * 6, taken=1, started=0.0, seen=(), **knobs):
    """The finding of six steps of 10 ms that wait for 8 ms each; ``made`` iterators of each,
    ``started`` of 8 ms.
    """
    batches = tuple(
        Batch(0, n, 8000.0, batches=taken, made=each, start_us=8000.0 * started)
        for n, each in enumerate(made)
    )
    timed = tuple(Step(n, 10_000.0) for n in range(len(made)))
    table = Batches(loaders=(loader,), quiet_steps=timed, quiet=batches)
    source = Source({"train.py": TEXT})
    rule = StepWaitsForInput(**knobs)
    (one,) = ask(rule, table, Machine(), source, Loading(source, {0: tuple(seen)} if seen else {}))
    return one, rule.remedy(one)


def line(share, where="worker", phase="dataset"):
    return (
        Seen((DEAR,), phase, 100 * share, 50, where),
        Seen((), phase, 100 * (1 - share), 50, where),
    )


@pytest.mark.parametrize(("share", "site"), [(0.49, MADE), (0.5, DEAR)])
def test_a_line_is_the_place_from_half_of_the_loading_time(share, site):
    one, remedy = found(seen=line(share))
    assert one.site == site and one.lost_us_per_step == 8000.0
    assert ("of the loading time of the loader made at train.py:1" in one.message) is (site is DEAR)
    assert ("Make this line cheaper" in remedy.text) is (site is DEAR)
    assert (dict(one.facts).get("loader") == "train.py:1") is (site is DEAR)


EACH = {"made": (1,) * 6, "started": 1.0}


def test_the_order_of_a_large_dataset_drawn_for_each_batch():
    loader = replace(LOADER, workers=0)
    drawn = (Seen((), "sampler", 50.0, 50), Seen((), "dataset", 50.0, 50))
    one, remedy = found(loader, seen=drawn, **EACH)
    assert one.site == TAKEN and "draws the order" in one.message
    assert remedy.edits == () and "batches = iter(loader)" in remedy.text
    less = (Seen((), "sampler", 49.0, 50), Seen((), "dataset", 51.0, 50))
    assert found(loader, seen=less, **EACH)[0].site == MADE


def test_workers_for_each_short_epoch_have_a_patch():
    one, remedy = found(**EACH, taken=4)
    assert "100% of that is starting and ending its 2 workers every 4 batches" in one.message
    (edit,) = remedy.edits
    assert (edit.keyword, edit.value, edit.site, edit.safe) == (
        "persistent_workers",
        "True",
        MADE,
        False,
    )
    assert found(**{**EACH, "started": 0.4}, taken=4)[0].site == MADE
    assert "starting" not in found(**{**EACH, "started": 0.4}, taken=4)[0].message


def waited(*waits_us, workers=2, queued_us=0.0, busy=0.0, **knobs):
    """Findings of steps of 10 ms that wait so long each."""
    batches = tuple(
        Batch(0, n, us, batches=1, queued_us=queued_us) for n, us in enumerate(waits_us)
    )
    timed = tuple(
        Step(n, 10_000.0 / (1 - busy), queued_us=10_000.0 * busy / (1 - busy))
        for n in range(len(waits_us))
    )
    loader = replace(LOADER, workers=workers)
    table = Batches(loaders=(loader,), quiet_steps=timed, quiet=batches)
    source = Source({"train.py": TEXT})
    return list(ask(StepWaitsForInput(**knobs), table, Machine(), source, Loading(source, {})))


def test_where_only_waits_for_a_processor_are_left_nothing_was_seen():
    """Not clean: on a machine that is not busy the step might wait as long."""
    with pytest.raises(NotLooked, match=r"the machine was busy: .* for 50% of the time"):
        waited(*(5000.0,) * 6, queued_us=5000.0)
    assert waited(*(1900.0,) * 6, queued_us=1900.0) == []
    assert waited(*(5000.0,) * 6, queued_us=5000.0, share=0.6) == []


def test_doubts_are_said():
    assert "alone may take that long" in waited(*(2500.0,) * 6)[0].message
    assert "busy" in waited(*(5000.0,) * 6, queued_us=None, busy=0.2)[0].message
    assert ";" not in waited(*(5000.0,) * 6)[0].message


def test_epochs_that_begin_every_few_steps_are_separate_events():
    (one, _) = found(made=(1, 0, 0, 1, 0, 0, 1, 0, 0), started=0.9)
    assert one.lost_us_per_step_low is not None and one.lost_us_per_step_low > 0.0
    assert one.lost_us_per_step_high >= one.lost_us_per_step


@pytest.mark.parametrize(
    ("workers", "cpus", "length", "share", "lines"),
    [
        (0, 8, 50, 0.6, [1, 5]),
        (2, 8, 50, 0.6, []),
        (0, 1, 50, 0.6, []),
        (0, 8, None, 0.6, []),
        (0, 8, 50, 0.4, []),
    ],
)
def test_a_loader_without_workers_is_a_place_beside_the_costliest_line(
    workers, cpus, length, share, lines
):
    own = replace(LOADER, workers=workers, length=length)
    table = Batches(
        loaders=(own,),
        quiet_steps=tuple(Step(n, 20_000.0) for n in range(6)),
        quiet=tuple(Batch(0, n, 8000.0, batches=1) for n in range(6)),
    )
    source = Source({"train.py": TEXT})
    loading = Loading(source, {0: line(share, where="step")})
    (one,) = ask(StepWaitsForInput(), table, Machine("cpu", cpus), source, loading)
    assert [place.site.line for place in one.places] == lines


@pytest.mark.parametrize(
    ("begin", "severity"), [((1,) * 6, Severity.ERROR), ((0,) * 6, Severity.NOTE)]
)
def test_iterators_that_begin_are_counted_on_a_busy_machine_too(begin, severity):
    table = Batches(
        loaders=(LOADER,),
        quiet_steps=tuple(Step(n, 20_000.0, queued_us=10_000.0) for n in range(6)),
        quiet=tuple(
            Batch(0, n, 8000.0, batches=1, made=made, start_us=8000.0 * made)
            for n, made in enumerate(begin)
        ),
    )
    source = Source({"train.py": TEXT})
    (one,) = ask(StepWaitsForInput(), table, Machine(), source, Loading(source, {}))
    assert one.severity == severity


@pytest.mark.parametrize(
    ("change", "begin", "us", "notes"),
    [
        ({}, (1,) * 6, 1000.0, 1),
        ({}, (1,) * 6, 999.0, 0),
        ({}, (1,) * (LEAST_STARTS - 1) + (0,), 1000.0, 0),
        ({}, (0,) * 6, 1000.0, 0),
        ({"workers": 0}, (1,) * 6, 1000.0, 0),
        ({"length": 1}, (1,) * 6, 1000.0, 0),
    ],
)
@pytest.mark.parametrize("queued", [0.0, 1000.0])
def test_iterators_that_begin_are_a_note_where_little_is_waited_for(
    change, begin, us, notes, queued
):
    table = Batches(
        loaders=(replace(LOADER, **change),),
        quiet_steps=tuple(Step(n, 20_000.0) for n in range(6)),
        quiet=tuple(
            Batch(0, n, us, batches=1, made=made, start_us=us * made, queued_us=queued)
            for n, made in enumerate(begin)
        ),
    )
    source = Source({"train.py": TEXT})
    found = list(ask(StepWaitsForInput(), table, Machine(), source, Loading(source, {})))
    assert [(one.severity, one.site) for one in found] == [(Severity.NOTE, TAKEN)] * notes
    for one in found:
        assert one.lost_us_per_step is None and "iterator" in one.message


@pytest.mark.parametrize(
    ("change", "begin", "us", "notes"),
    [
        ({}, (0, 0, 0, 1) * 3, 8000.0, 1),
        ({}, (0, 0, 0, 1) * 3, 7999.0, 0),  # 10 % of the time by the clock
        ({}, (0, 0, 0, 0, 0, 1) * 2, 30_000.0, 0),  # two may be the ends of long epochs
        ({"persistent": True}, (0, 0, 0, 1) * 3, 8000.0, 0),
        ({"workers": 0}, (0, 0, 0, 1) * 3, 8000.0, 0),
        ({"made_at": None}, (0, 0, 0, 1) * 3, 8000.0, 0),
    ],
)
def test_workers_started_anew_are_a_note_where_others_may_have_had_the_processor(
    change, begin, us, notes
):
    table = Batches(
        loaders=(replace(LOADER, **change),),
        quiet_steps=tuple(Step(n, 20_000.0) for n in range(12)),
        quiet=tuple(
            Batch(0, n, us * made, batches=1, made=made, start_us=us * made, queued_us=us * made)
            for n, made in enumerate(begin)
        ),
    )
    source, rule = Source({"train.py": TEXT}), StepWaitsForInput()
    found = list(ask(rule, table, Machine(), source, Loading(source, {})))
    assert [(one.severity, one.site) for one in found] == [(Severity.NOTE, MADE)] * notes
    for one in found:
        assert one.lost_us_per_step is None and "restarted every 4 batches" in one.message
        assert "persistent_workers=True" in rule.remedy(one).text


def test_one_slow_start_is_not_the_usual_one():
    begin = (0, 0, 0, 1) * 3
    starts = iter((2000.0, 60_000.0, 2000.0))
    quiet = []
    for n, made in enumerate(begin):
        us = next(starts) if made else 0.0
        quiet.append(Batch(0, n, us, batches=1, made=made, start_us=us, queued_us=us))
    steps = tuple(Step(n, 20_000.0) for n in range(12))
    table = Batches(loaders=(LOADER,), quiet_steps=steps, quiet=tuple(quiet))
    source = Source({"train.py": TEXT})
    assert list(ask(StepWaitsForInput(), table, Machine(), source, Loading(source, {}))) == []


HIDDEN = Fetched(10, 40, 100_000.0, 90_000.0)
"""10 ms for a batch of four."""


@pytest.mark.parametrize(
    ("step_us", "each", "change", "notes"),
    [
        (20_000.0, {}, {}, 1),
        (20_001.0, {}, {}, 0),  # half a worker
        (5_000.0, {}, {}, 1),
        (4_999.0, {}, {}, 0),  # more than the two that there are
        (5_000.0, {"us": 29_999.0}, {}, 0),  # 3 ms for a batch
        (5_000.0, {"us": 30_001.0}, {}, 1),
        (20_000.0, {}, {"share": 0.49}, 0),  # no line takes half of it
        (20_000.0, {}, {"machine": Machine("cuda")}, 0),  # of two workers
        (10_000.0, {}, {"machine": Machine("cuda")}, 1),
        (20_000.0, {}, {"waited": 19_000.0, "queued": 19_000.0}, 1),  # where it was skipped
        (20_000.0, {}, {"fetched": False}, 0),
    ],
)
def test_a_line_that_workers_hide_is_a_note(step_us, each, change, notes):
    waited, queued = change.get("waited", 100.0), change.get("queued", 0.0)
    table = Batches(
        loaders=(LOADER,),
        quiet_steps=tuple(Step(n, step_us) for n in range(6)),
        quiet=tuple(Batch(0, n, waited, batches=1, queued_us=queued) for n in range(6)),
    )
    source, rule = Source({"train.py": TEXT}), StepWaitsForInput()
    own = {0: replace(HIDDEN, **each)} if change.get("fetched", True) else {}
    loading = Loading(source, {0: line(change.get("share", 0.6))}, own)
    found = list(ask(rule, table, change.get("machine", Machine()), source, loading))
    assert [(one.severity, one.site) for one in found] == [(Severity.NOTE, DEAR)] * notes
    for one in found:
        assert one.lost_us_per_step is None and "workers busy: the step" in one.message
        assert "cheaper" in rule.remedy(one).text and not rule.remedy(one).edits


@pytest.mark.parametrize(
    ("fetched", "said"),
    [
        (HIDDEN, "2.5 ms for each sample, 2.25 ms of it on a processor"),
        (replace(HIDDEN, samples=10), "10 ms for each batch, 9 ms of it on a processor"),
    ],
)
def test_what_a_sample_costs(fetched, said):
    assert fetched.cost == said
