import gc
import threading
import weakref
from pathlib import Path

import pytest
from torch.utils.data import DataLoader, Subset

from auditor.capture.probes.data.dataloader import DataLoaderProbe
from auditor.capture.probes.data.dataloader_facts import describe_loader
from tests.capture.drive import Drive, framework, line_of, load, watched

HEAD = """
import collections, dataclasses, functools, itertools, time, numpy, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset
"""


def program(tmp_path, source):
    import textwrap

    return load(tmp_path, HEAD.lstrip("\n") + textwrap.dedent(source))


def test_the_end_of_an_epoch_is_waited_for_but_is_no_batch(tmp_path):
    source = """
    class Slow(Dataset):
        def __len__(self): return 2
        def __getitem__(self, i): return i
    class SlowSampler:
        def __iter__(self):
            yield 0
            time.sleep(0.02)
        def __len__(self): raise AssertionError("nobody may ask: it could draw random numbers")
    loader = DataLoader(Slow(), batch_size=1, sampler=SlowSampler())
    batches = iter(loader)
    def step():
        global batches
        try:
            next(batches)
        except StopIteration:
            batches = iter(loader)
            next(batches)
    """
    user, drive = watched(tmp_path, source, DataLoaderProbe, run="quiet", steps=3, load=program)
    rows, (loader,) = drive.rows("batches"), drive.rows("loaders")
    assert ([row["n"] for row in rows], loader["length"]) == ([1, 1, 1], None)
    assert rows[0]["wait_us"] < 10_000 < rows[1]["wait_us"]


def test_a_loader_inside_a_dataset_is_part_of_the_outer_wait(tmp_path):
    source = """
    class Outer(Dataset):
        def __len__(self): return 4
        def __getitem__(self, i):
            time.sleep(0.005)
            return torch.cat(list(DataLoader(TensorDataset(torch.ones(4, 2, device="meta")), collate_fn=lambda s: s[0][0].new_ones(1, 2, device="cpu"))))
    loader = DataLoader(Outer())
    def step(): next(iter(loader))
    """
    user, drive = watched(tmp_path, source, DataLoaderProbe, steps=1, load=program)
    (row,) = drive.rows("batches")
    assert len(drive.rows("loaders")) == 1
    assert row["n"] == 1 and row["sample_devices"] == ["cpu"] and row["wait_us"] < 30_000


def test_other_threads_and_the_time_between_steps_do_not_count(tmp_path):
    with Drive(tmp_path, DataLoaderProbe) as drive:
        user = program(tmp_path, "loader = DataLoader([1.0] * 9)\ndef use(): next(iter(loader))\n")

        def elsewhere() -> None:
            thread = threading.Thread(target=user.use)
            thread.start()
            thread.join()

        with drive.running("loud"):
            user.use()
            drive.step(elsewhere)
            user.use()
        assert drive.rows("batches") == [] and drive.rows("loaders") == []


def test_iterators_and_what_their_collate_function_holds_die_as_before(tmp_path):
    source = """
    class Trainer:
        def __init__(self):
            self.loader = DataLoader([1.0] * 4, collate_fn=self.collate)
            self.batches = iter(self.loader)
        def collate(self, samples): return samples
        def step(self): next(self.batches)
    """
    with Drive(tmp_path, DataLoaderProbe) as drive:
        trainer = program(tmp_path, source).Trainer()
        drive.run("quiet", trainer.step, steps=1)
        gone = weakref.ref(trainer)
        drive.context.target = None
        del trainer
        gc.collect()
        assert gone() is None


def test_a_loader_from_before_the_recorder(tmp_path):
    user = program(
        tmp_path,
        "loader = DataLoader([1.0] * 9, batch_size=3)\nbatches = iter(loader)\ndef step(): "
        "next(batches)\n",
    )
    with Drive(tmp_path, DataLoaderProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        (loader,) = drive.rows("loaders")
    assert loader["made_at"] is None and loader["batch_size"] == 3 and loader["dataset"] == "list"


FRAMEWORK = """
from torch.utils.data import DataLoader, Subset

class Shard(DataLoader):
    def __init__(self, dataset, **given):
        super().__init__(dataset, **given)

    def __iter__(self):
        for batch in super().__iter__():
            yield batch

def prepare(loader):
    return Shard(loader.dataset, batch_size=loader.batch_size, pin_memory=loader.pin_memory)

def loader_for(dataset):
    return DataLoader(dataset, batch_size=4)
"""


@pytest.mark.parametrize(
    ("made", "library"),
    [
        ("loader = framework.prepare(DataLoader(data, batch_size=4))  # at", False),
        ("mine = DataLoader(data, batch_size=4)  # at\nloader = framework.prepare(mine)", False),
        ("loader = framework.prepare(framework.loader_for(data))  # at", True),
        (
            (
                "mine = DataLoader(data)\nother = DataLoader(data)\nloader = "
                "framework.prepare(mine)  "
                "# at"
            ),
            True,
        ),
    ],
    ids=["in one line", "in two", "made by the framework alone", "from one of two"],
)
def test_a_loader_that_a_framework_builds_from_the_users_is_the_users(tmp_path, made, library):
    framework(tmp_path, FRAMEWORK)
    head = "import framework\ndata = TensorDataset(torch.ones(64, 2))\n"
    user, drive = watched(
        tmp_path,
        f"{head}{made}\nbatches = iter(loader)\n\ndef step():\n    next(batches)\n",
        DataLoaderProbe,
        run="quiet",
        steps=2,
        load=program,
    )
    (loader,) = drive.rows("loaders")
    assert loader["made_at_line"] == line_of(user, "at")
    assert ("via" in loader["made_at_site"]) is library


@pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(),
    reason="this kernel does not count waits for the processor",
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_workers_wait_for_a_processor_is_told_of_timed_steps(tmp_path, workers):
    source = f"""
    loader = DataLoader(torch.ones(64, 3), batch_size=2, num_workers={workers})
    batches = iter(loader)
    def step(): next(batches)
    """
    with Drive(tmp_path, DataLoaderProbe) as drive:
        user = program(tmp_path, source)
        drive.run("quiet", user.step, steps=3)
        drive.run("loud", user.step, steps=2)
        rows = drive.rows("batches")
    told = [row["queued_us"] for row in rows if "queued_us" in row]
    assert len(told) == (3 if workers else 0) and all(us >= 0.0 for us in told)
    assert all(row["pass"] == "quiet" for row in rows if "queued_us" in row)


@pytest.mark.parametrize(
    ("held", "draws"),
    [
        ("numpy.random.default_rng(0)", True),
        ("numpy.random.RandomState(0)", True),
        ("torch.Generator()", True),
        ("__import__('random').Random(0)", True),
        ("numpy.zeros(2)", False),
    ],
)
def test_a_generator_that_a_dataset_keeps(tmp_path, held, draws):
    user = program(tmp_path, f"dataset = TensorDataset(torch.ones(4))\ndataset.held = {held}\n")
    facts = describe_loader(DataLoader(Subset(user.dataset, [0, 1])), None)
    assert facts.row(0, None).draws is draws
