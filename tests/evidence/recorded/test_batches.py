"""Loaders and batches: how long the steps waited, and who put a batch on the device."""

import pytest

from auditor.evidence.recorded.batches import (
    CROWDED,
    Batches,
    Loader,
    Resident,
    Starts,
    Waiting,
)
from auditor.evidence.recorded.step_pattern import step_pattern
from auditor.evidence.recorded.steps import Step
from auditor.model import Site
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import batch, loud, quiet, steps


def waiting(waits, us=100.0):
    return Waiting(Loader(0), tuple(waits), (us,) * len(waits))


def test_batches_by_pass(seen):
    rows = [
        quiet(0, loader=1, n=1, wait_us=30.0),
        loud(1, loader=1, n=1, devices={"cuda:0": 2, "cpu": 1}, sample_devices=["cpu"]),
        loud(0, loader=1, n=1, default_device="cuda:0"),
    ]
    table = seen(steps=steps(2, "quiet") + steps(4), loaders=[], batches=rows).get(Batches)
    assert (len(table.quiet_steps), table.loud_steps) == (2, 4)
    assert [(each.step, each.wait_us) for each in table.quiet] == [(0, 30.0)]
    assert [each.step for each in table.loud] == [1, 0]


def test_what_was_not_watched_is_not_looked_at():
    with pytest.raises(NotLooked, match="no torch DataLoader"):
        Batches().need_a_loader()
    with pytest.raises(NotLooked, match="no step was timed"):
        Batches().need_times()
    Batches(quiet=(batch(0, 0),)).need_a_loader()
    Batches(loud=(batch(0, 0),)).need_a_loader()
    Batches(quiet_steps=(Step(0, 1.0),)).need_times()


def test_waits_of_the_loader_that_was_waited_for_most():
    quiet_steps = tuple(Step(n, 100.0, queued_us=20.0) for n in range(3))
    batches = (batch(1, 0, 30.0), batch(1, 2, 10.0), batch(2, 0, 5.0), batch(2, 9, 900.0))
    loaders = (Loader(1, workers=4), Loader(2))
    found = Batches(loaders=loaders, quiet_steps=quiet_steps, quiet=batches).waiting()
    assert (found.loader.number, found.waits_us) == (1, (35.0, 0.0, 10.0))
    assert found.steps_us == (80.0, 80.0, 80.0)
    assert (found.mean_us, found.share) == (15.0, 0.1875)
    assert Batches(quiet_steps=quiet_steps, quiet=batches).waiting() is None
    assert Batches(loaders=(Loader(1),), quiet_steps=quiet_steps).waiting() is None


def crowd(queued, waits, workers=2, step_queued_us=20.0):
    """The waiting of steps of 100 us, of batches that waited so long for a processor in workers."""
    steps = tuple(Step(n, 100.0, queued_us=step_queued_us) for n in range(len(waits)))
    quiet = tuple(batch(1, n, us, queued_us=queued[n]) for n, us in enumerate(waits))
    return Batches(loaders=(Loader(1, workers=workers),), quiet_steps=steps, quiet=quiet).waiting()


@pytest.mark.parametrize(
    ("queued", "waits", "steps"),
    [
        ((None, None, None), (30.0, 0.0, 50.0), (80.0, 80.0, 80.0)),
        ((0.0, 0.0, 0.0), (30.0, 0.0, 50.0), (80.0, 80.0, 80.0)),
        ((10.0, 0.0, 20.0), (20.0, 0.0, 30.0), (70.0, 80.0, 60.0)),
        ((90.0, 0.0, 0.0), (0.0, 0.0, 0.0), (50.0, 80.0, 30.0)),  # what was left holds up the third
        ((40.0, 15.0, 0.0), (0.0, 0.0, 25.0), (50.0, 80.0, 55.0)),
        ((0.0, 0.0, 90.0), (30.0, 0.0, 0.0), (80.0, 80.0, 30.0)),  # it held up nothing before
    ],
)
def test_what_workers_waited_for_a_processor_is_in_no_wait(queued, waits, steps):
    found = crowd(queued, (30.0, 0.0, 50.0))
    assert (found.waits_us, found.steps_us) == (waits, steps)
    assert found.crowded is (queued[0] is None)


def test_what_the_workers_of_one_loader_waited_is_not_the_others():
    found = Batches(
        loaders=(Loader(1, workers=1), Loader(2, workers=1)),
        quiet_steps=(Step(0, 100.0),),
        quiet=(batch(1, 0, 30.0, queued_us=90.0), batch(2, 0, 40.0, queued_us=0.0)),
    ).waiting()
    assert (found.loader.number, found.waits_us) == (2, (40.0,))


@pytest.mark.parametrize(
    ("queued", "workers", "share", "crowded"),
    [
        ((0.0, 0.0, None, None), 2, 0.5, False),
        ((0.0, None, None, None), 2, 0.5, True),  # most waits of workers are not known
        ((None,), 1, CROWDED, True),
        ((None,), 1, CROWDED - 0.01, False),
        ((None,), 0, 0.5, False),
    ],
)
def test_a_busy_machine_on_which_waits_of_workers_are_not_known(queued, workers, share, crowded):
    assert crowd(queued, (30.0,) * len(queued), workers, 100.0 * share).crowded is crowded


@pytest.mark.parametrize("number", [4, 5])
def test_a_price_needs_five_steps(number):
    price = waiting([20.0] * number).price
    assert price is None if number < 5 else (price.value, price.low, price.high) == (20, 20, 20)


@pytest.mark.parametrize(
    ("batches", "cause"),
    [
        ([("cuda:0", ()), ("cuda:1", ("cuda",))], "default device"),
        ([("cuda:0", ()), ("cpu", ())], "collate function"),
        ([("cpu", ("cuda:0",)), ("cpu", ())], "dataset"),
        ([("cpu", ("cpu", "cuda:0")), ("cpu", ()), ("cpu", ())], "collate function"),
    ],
)
def test_who_put_the_batches_on_the_device(batches, cause):
    rows = tuple(
        batch(7, step, devices={"cuda:0": 1}, sample_devices=[*samples], default_device=default)
        for step, (default, samples) in enumerate(batches)
    )
    other = (batch(8, 0, devices={"cuda:5": 1}), batch(7, 1, devices={"cpu": 1}))
    line = Site("trainer.py", 2)
    table = Batches(
        loaders=(Loader(7), Loader(9)), loud_steps=4, loud=rows + other, default_set_at=line
    )
    (found,) = table.resident()
    assert (found.cause, found.devices, found.default_set_at) == (cause, ("cuda:0",), line)
    assert found.pattern == step_pattern(set(range(len(batches))), 4)


DATASET, COLLATE = (
    ("dataset", "the dataset Numbers"),
    ("collate function", "the collate function pad"),
)
DEFAULT = ("default device", "torch.set_default_device")


@pytest.mark.parametrize(
    ("cause", "known", "line"),
    [
        (DATASET, ("dataset_at", "collate_at", "made_at"), "dataset_at"),
        (DATASET, ("collate_at", "made_at"), "collate_at"),
        (COLLATE, ("dataset_at", "made_at", "consumed_at"), "made_at"),
        (COLLATE, ("consumed_at",), "consumed_at"),
        (DEFAULT, ("default_set_at", "collate_at"), "default_set_at"),
        (DEFAULT, ("made_at",), "made_at"),
    ],
)
def test_the_nearest_line_that_is_known(cause, known, line):
    sites = {name: Site(name, 1) for name in known}
    default = sites.pop("default_set_at", None)
    loader = Loader(0, workers=3, dataset="Numbers", collate="pad", **sites)
    found = Resident(loader, step_pattern({0}, 1), cause[0], ("cuda:0", "cuda:1"), default)
    assert (found.site.file, found.blame) == (line, cause[1])
    assert found.facts == (("cause", cause[1]), ("devices", "cuda:0, cuda:1"), ("num_workers", "3"))


@pytest.mark.parametrize(
    ("waits", "steps", "share", "recurring"),
    [
        ((5.0, 5.0), (10.0, 10.0), 0.5, 0.5),
        ((9.0, 1.0), (10.0, 10.0), 0.5, 0.1),
        ((3.0,), (10.0,), 0.3, 0.3),
        ((0.0, 0.0), (0.0, 0.0), 0.0, 0.0),
        ((4.0, 0.0), (8.0, 0.0), 0.5, 0.0),
        ((0.5, 0.25), (0.0, 0.0), 0.75, 0.25),  # of a microsecond where no time was told
    ],
)
def test_shares_of_the_waiting(waits, steps, share, recurring):
    waiting = Waiting(Loader(1), waits, steps)
    assert waiting.share == pytest.approx(share)
    assert waiting.recurring_share == pytest.approx(recurring)


RESIDENT = """\
class Held(Dataset):
    def __init__(self, x):
        self.x = x.to("cuda")
    def __getitem__(self, i):
        return self.x[i]
def collate(rows):
    rows = torch.stack(rows)
    return rows.cuda()
"""


@pytest.mark.parametrize(
    ("lines", "workers", "found"),
    [
        ((), (2,), 3),  # the samples lie there: default_collate asks for shared memory
        ((5,), (2,), 3),
        ((7, 8), (2,), 8),
        ((8,), (2, 2), 8),
        ((), (2, 2), None),  # which of the two it was cannot be told
        ((), (2, 0), 3),
        ((), (0,), None),
        (None, (2,), None),
    ],
)
def test_worker_processes_that_ask_for_cuda(seen, home, lines, workers, found):
    file = str(home / "trainer.py")
    torchs = {"file": "/site-packages/torch/utils/data/_utils/fetch.py", "line": 57}
    own = [{"file": file, "line": line} for line in lines or ()]
    held = {"dataset": "Held", "dataset_file": file, "dataset_line": 1}
    rows = [
        {"loader": n, "made_at": n, "workers": each, **(held if n == 0 else {})}
        for n, each in enumerate(workers)
    ]
    manifest = {"cuda_in_worker": None if lines is None else [torchs, *own, torchs]}
    table = seen(text=RESIDENT, sites=[1, 2], steps=[], loaders=rows, batches=[], manifest=manifest)
    worker = table.get(Batches).in_worker
    assert (worker and worker.site.line) == found


@pytest.mark.parametrize("manifest", [{"cuda_in_worker": 3}, {"cuda_in_worker": [4, {"file": 5}]}])
def test_a_manifest_that_says_something_else_is_borne(seen, manifest):
    rows = [{"loader": 0, "workers": 2}]
    table = seen(text=RESIDENT, steps=[], loaders=rows, batches=[], manifest=manifest)
    worker = table.get(Batches).in_worker
    assert worker is None or worker.site is None


def test_how_iterators_began():
    rows = (
        batch(1, 0, 30.0, n=2, made=1, start_us=20.0),
        batch(1, 1, 10.0, n=1),
        batch(1, 2, 40.0, n=3, made=2, start_us=50.0),
        batch(2, 0, 99.0, n=9, made=9, start_us=9.0),
    )
    starts = Batches(quiet=rows).starts(1)
    assert starts == Starts(3, 6, 70.0, 80.0, (20.0, 50.0))
    assert (starts.share, starts.batches_each) == (0.875, 2.0)
    assert (Starts(batches=4).share, Starts(batches=4).batches_each) == (0.0, 4.0)
