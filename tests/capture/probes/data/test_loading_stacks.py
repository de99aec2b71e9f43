"""Which lines the loading takes its time in: in the step itself, in workers, in the sampler."""

import glob
import os
import tempfile
import textwrap
import threading

from torch.utils.data import DataLoader
from torch.utils.data._utils import fetch, worker

from auditor.capture.probes.data.dataloader import DataLoaderProbe
from auditor.recordings.folder import Recording
from tests.capture.drive import Drive, load, watched

HEAD = """
import random, time, numpy, torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
"""

SLOW = """
def fetched(i):
    time.sleep(0.004)  # deep
    return torch.full((3,), float(i))

class Slow(Dataset):
    def __len__(self): return 4000
    def __getitem__(self, i):
        return fetched(i)  # item

class Stream(IterableDataset):
    def __iter__(self):
        for i in range(400):
            time.sleep(0.004)  # stream
            yield torch.ones(3)

class Order:
    def __len__(self): return 1000
    def __iter__(self):
        for i in range(1000):
            time.sleep(0.008)  # order
            yield [i]

def pack(rows):
    time.sleep(0.008)  # pack
    return torch.stack(rows)

quick = TensorDataset(torch.ones(4000, 3))
"""


def program(folder, source):
    return load(folder, HEAD.lstrip("\n") + textwrap.dedent(source))


def rows_of(drive):
    drive.writer.flush()
    rows = drive.rows("loading")
    recording = Recording(drive.folder)
    for row in rows:
        row["lines"] = [recording.site_row(number).line for number in row["stack"]]
    return rows


def test_a_spawned_worker_tells_as_well(tmp_path):
    source = """
    loader = DataLoader(range(1_000_000), batch_size=100_000, collate_fn=sorted, num_workers=1,
                        multiprocessing_context="spawn")
    def step(): next(batches)
    """
    with Drive(tmp_path, DataLoaderProbe) as drive:
        user = program(tmp_path, source)
        user.batches = iter(user.loader)
        drive.run("loud", user.step, steps=6)
        rows = rows_of(drive)
        del user.batches
    assert [row for row in rows if row["where"] == "worker" and row["phase"] == "dataset"]


NOISE = """
seen = []
class Noise(Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        return torch.tensor([float(torch.rand(1)), random.random(), numpy.random.rand()])
def begin(number):
    random.seed(number)
def run():
    torch.manual_seed(3), random.seed(3), numpy.random.seed(3)
    loader = DataLoader(Noise(), batch_size=4, shuffle=True, num_workers=2, worker_init_fn=begin, persistent_workers=True)
    batches = iter(loader)
    def step(): seen.append(next(batches))
    return step
"""


def test_what_the_loader_yields_is_the_same_to_the_bit(tmp_path):
    user = program(tmp_path, NOISE)
    step = user.run()
    for _ in range(8):
        step()
    plain = [batch.clone() for batch in user.seen]
    del step
    with Drive(tmp_path, DataLoaderProbe) as drive:
        user = program(tmp_path, NOISE)
        step = user.run()
        drive.run("quiet", step, steps=2)
        drive.run("loud", step, steps=6)
        del step
    assert all(one.equal(other) for one, other in zip(plain, user.seen, strict=True))


def test_everything_is_put_back(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other tests put theirs beside it

    def state():
        return worker._worker_loop, fetch._MapDatasetFetcher.fetch

    folders = os.path.join(tempfile.gettempdir(), "audit-loading-*")
    before, there, threads = state(), set(glob.glob(folders)), set(threading.enumerate())
    source = f"{SLOW}\nloader = DataLoader(Slow(), num_workers=1)\ndef step(): next(iter(loader))\n"
    user, drive = watched(tmp_path, source, DataLoaderProbe, steps=2, load=program)
    assert state() == before and set(glob.glob(folders)) <= there
    assert set(threading.enumerate()) <= threads
    next(iter(DataLoader([1, 2], num_workers=1)))
