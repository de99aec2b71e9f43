"""DATA007: which cause is named for a loader that the step waits for, and at which line."""

from dataclasses import replace

import pytest
from auditor.rules.data.data007_input_bound import StepWaitsForInput

from auditor.evidence.recorded.batches import Batches, Loader, Loading, Seen
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Step
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.recordings.schema.sync import WorkerKeptRow
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import batch
from tests.rules.asking import ask, rows

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


def asked(
    waits,
    loader=LOADER,
    *,
    made=(),
    started=1.0,
    taken=1,
    queued=0.0,
    step_us=20_000.0,
    busy=0.0,
    machine=Machine(),
    seen=(),
    kept=(),
    **knobs,
):
    """Findings and remedies of steps that wait so long for ``taken`` batches each. Of a wait the
    share ``started`` is the iterator's where one is made, ``queued`` is for a processor.
    """
    made = made or (0,) * len(waits)
    quiet = tuple(
        batch(
            0,
            n,
            us,
            n=taken,
            made=made[n],
            start_us=us * started * made[n],
            queued_us=None if queued is None else us * queued,
        )
        for n, us in enumerate(waits)
    )
    timed = tuple(Step(n, step_us, queued_us=step_us * busy) for n in range(len(waits)))
    table = Batches(loaders=(loader,), quiet_steps=timed, quiet=quiet)
    source, rule = Source({"train.py": TEXT}), StepWaitsForInput(**knobs)
    loading = Loading({0: tuple(seen)} if seen else {})
    told = (table, machine, source, loading, *kept)
    return [(one, rule.remedy(one)) for one in ask(rule, *told)]


def found(loader=LOADER, waits=(8000.0,) * 6, **more):
    """The finding of steps of 10 ms."""
    (one,) = asked(waits, loader, step_us=10_000.0, **more)
    return one


def line(share, where="worker", phase="dataset"):
    return (
        Seen((DEAR,), phase, 100 * share, 50, where),
        Seen((), phase, 100 * (1 - share), 50, where),
    )


@pytest.mark.parametrize(("share", "site"), [(0.49, MADE), (0.5, DEAR)])
def test_a_line_is_the_place_from_half_of_the_loading_time(share, site):
    one, remedy = found(seen=line(share))
    assert one.site == site and one.lost_us_per_step == 8000.0
    assert ("of the loading time of the loader created at train.py:1" in one.message) is (
        site is DEAR
    )
    assert ("Make this line cheaper" in remedy.text) is (site is DEAR)
    assert (dict(one.facts).get("loader") == "train.py:1") is (site is DEAR)


EACH = (1,) * 6


@pytest.mark.parametrize(("share", "site"), [(50, TAKEN), (49, MADE)])
def test_the_order_of_a_large_dataset_drawn_for_each_batch(share, site):
    drawn = (Seen((), "sampler", share, 50), Seen((), "dataset", 100 - share, 50))
    one, remedy = found(replace(LOADER, workers=0), seen=drawn, made=EACH)
    assert one.site == site and ("draws the order" in one.message) is (site is TAKEN)
    assert ("batches = iter(loader)" in remedy.text and not remedy.edits) is (site is TAKEN)


@pytest.mark.parametrize(("started", "edits"), [(1.0, 1), (0.4, 0)])
def test_workers_for_each_short_epoch_have_a_patch(started, edits):
    one, remedy = found(made=EACH, taken=4, started=started)
    said = "100% of that goes to starting and ending its 2 workers every 4 batches"
    assert one.site == MADE and (said in one.message) is ("starting" in one.message) is bool(edits)
    patch = [(edit.keyword, edit.value, edit.site, edit.safe) for edit in remedy.edits]
    assert patch == [("persistent_workers", "True", MADE, False)] * edits


def test_where_only_waits_for_a_processor_are_left_nothing_was_seen():
    """Not clean: on a machine that is not busy the step might wait as long."""
    with pytest.raises(NotLooked, match=r"the machine was busy: .* for 50% of the time"):
        found(waits=(5000.0,) * 6, queued=1.0)
    assert asked((1900.0,) * 6, queued=1.0, step_us=10_000.0) == []
    assert asked((5000.0,) * 6, queued=1.0, step_us=10_000.0, share=0.6) == []


def test_doubts_are_said():
    assert "may take that long by itself" in found(waits=(2500.0,) * 6)[0].message
    ((one, _),) = asked((5000.0,) * 6, queued=None, step_us=12_500.0, busy=0.2)
    assert "busy" in one.message
    assert ";" not in found(waits=(5000.0,) * 6)[0].message


def test_epochs_that_begin_every_few_steps_are_separate_events():
    one, _ = found(waits=(8000.0,) * 9, made=(1, 0, 0) * 3, started=2.7)
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
def test_a_loader_without_workers_is_beside_the_costliest_line(workers, cpus, length, share, lines):
    own, seen = replace(LOADER, workers=workers, length=length), line(share, where="step")
    ((one, _),) = asked((8000.0,) * 6, own, machine=Machine("cpu", cpus), seen=seen)
    assert [place.site.line for place in one.places] == lines


@pytest.mark.parametrize(("made", "severity"), [(EACH, Severity.ERROR), ((), Severity.NOTE)])
def test_iterators_that_begin_are_counted_on_a_busy_machine_too(made, severity):
    ((one, _),) = asked((8000.0,) * 6, made=made, queued=None, busy=0.5)
    assert one.severity == severity


def kept(function, **more):
    row = WorkerKeptRow(root="", function=function, line=34, tensors=[], nbytes=[], **more)
    return rows(row)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (kept("Leaves._load", fetched=240, stored=239), True),
        (kept("Leaves._load"), False),  # it was not seen to miss
        (kept("Others._load", fetched=240, stored=239), False),
    ],
)
def test_a_cache_that_never_hits_comes_before_the_line_that_creates_samples(row, told):
    own = replace(LOADER, dataset="Leaves")
    finding, remedy = found(own, seen=line(0.9), kept=(row,))
    assert ("line 34 never hits" in finding.message) is told
    assert remedy.text.startswith("Repair the key of that cache") is told
