"""Half the batch, estimated from one recording, against the same program run with half the
batch.
"""

import pickle

import pytest
from auditor.rules.mem.mem006_peak_by_line import PeakHolders

from auditor.allocator import CachingAllocator, OutOfMemory
from auditor.evidence.snapshot.out_of_memory import OutOfMemory as Shortage
from auditor.evidence.table import Evidence
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.memory import OwnerRow
from auditor.recordings.standalone import SnapshotRecording

MIB = 2**20
LOADERS = [LoaderRow(loader=0, batch_size=8), LoaderRow(loader=1, batch_size=64)]
AT = ({"filename": "/home/user/train.py", "line": 3, "name": "step"},)


class Recorded(SnapshotRecording):
    """A snapshot with what a recorder writes beside it."""

    def __init__(self, path, rows):
        super().__init__(path)
        self._rows = rows

    def has(self, part):
        return part in self._rows

    def typed_rows(self, part):
        return self._rows.get(part, [])


class Program:
    """Two weights, three steps: activations of 12 MiB for each element of the batch, gradients, an
    optimizer with temporaries.
    """

    def __init__(self, batch, card=1 << 40):
        self.batch, self.allocator, self.now, self.owners = batch, CachingAllocator(card), 0, []

    def make(self, size):
        self.now += 10
        return self.allocator.malloc(size, frames=AT, now_us=self.now)

    def drop(self, *addresses):
        for address in addresses:
            self.now += 10
            self.allocator.free(address, self.now)

    def mark(self, what, addresses=()):
        self.now += 10
        self.owners.append(OwnerRow(what=what, time_us=self.now, addresses=list(addresses)))

    def run(self, steps=3):
        weights, state = [self.make(64 * MIB) for _ in range(2)], []
        for _ in range(steps):
            self.mark("step")
            made = [self.make(self.batch * 4 * MIB) for _ in range(3)]
            gradients = [self.make(64 * MIB) for _ in weights]
            self.drop(*made)
            self.mark("parameter", weights)
            self.mark("gradient", gradients)
            state = state or [self.make(64 * MIB) for _ in weights]
            self.drop(self.make(32 * MIB))
            self.mark("optimizer state", state)
            self.drop(*gradients)
        return self

    def recording(self, folder, loaders=LOADERS, used=(0,)):
        path = folder / f"snapshot{self.batch}.pickle"
        path.write_bytes(pickle.dumps(self.allocator.snapshot()))
        rows = {
            "owners": self.owners,
            "loaders": loaders,
            "batches": [BatchRow(loader=number) for number in used],
        }
        return Evidence(Recorded(path, rows))


def peak_of(recording):
    (peak,) = recording.get(PeakHolders).devices
    return peak


def test_it_is_what_the_program_needs_with_half_the_batch(tmp_path):
    told = peak_of(Program(8).run().recording(tmp_path))
    halved = Program(4).run()
    assert told.allocated > peak_of(halved.recording(tmp_path)).allocated
    peaks = [
        halved.allocator.stats()[f"{what}_bytes.all.peak"] // MIB
        for what in ("allocated", "reserved")
    ]
    said = f"{peaks[0]} MiB at the peak, {peaks[1]} MiB reserved"
    assert told.halved == (("with a batch of 4 instead of 8 (estimated)", said),)


def test_without_an_optimizer_nothing_is_said(tmp_path):
    program = Program(8).run()
    program.owners = [row for row in program.owners if row.what == "step"]
    assert peak_of(program.recording(tmp_path)).halved == ()


def test_an_error_says_whether_half_the_batch_would_have_fitted(tmp_path):
    program = Program(8, card=700 * MIB).run()
    program.mark("step")
    for _ in range(4):
        program.make(80 * MIB)
    with pytest.raises(OutOfMemory):
        program.make(160 * MIB)
    shortage = program.recording(tmp_path).get(Shortage)
    assert shortage.happened
    assert [(what, said.rpartition(", ")[2]) for what, said in shortage.halved] == [
        ("with a batch of 4 instead of 8 (estimated)", "fits")
    ]


def test_a_batch_of_one_has_no_half(tmp_path):
    loaders = [LoaderRow(loader=0, batch_size=1)]
    assert peak_of(Program(8).run().recording(tmp_path, loaders)).halved == ()
