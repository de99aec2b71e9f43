"""Rules that tell of several lines: one behind an innocent one is told, and so are two."""

from auditor.rules.data.datasets import LoaderYieldsDeviceTensors
from auditor.rules.mem.segments import DeviceMemoryNearlyFull, DevicePeak, TraceMemory
from auditor.rules.num.half_range import HalfNearOverflow, UpdatesRoundedAway
from auditor.rules.num.nonfinite import WeightsPoisoned
from auditor.rules.num.rows import UpdateRow

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.amp import Amp, OpRanges
from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.scans import Scan, Tally, TensorFacts
from auditor.model import Site
from tests.evidence.recorded.rows import batch
from tests.rules.asking import ask, delicate, rows

CPU, CUDA = Machine("cpu", 8), Machine("cuda", 8, capability=8)
LINES = tuple(Site("t.py", line, "step", "") for line in range(1, 5))
OFTEN = {1: range(20), 3: range(20)}
"""Steps by line: the first and the third do it once."""


def steps_of(at: int) -> list[int]:
    return list(OFTEN.get(at, [0]))


def lines(findings):
    return [each.site.line for each in findings]


def test_loaders():
    cuda = {"cuda:0": 1}
    batches = tuple(batch(at, step, devices=cuda) for at in range(4) for step in steps_of(at))
    loaders = tuple(Loader(at, made_at=site) for at, site in enumerate(LINES))
    table = Batches("cuda", loaders, (), 20, (), batches)
    assert lines(LoaderYieldsDeviceTensors().detect(table, CUDA)) == [2, 4]


def test_values_near_the_end_of_float16():
    calls = tuple(
        delicate(op="mm", what="output", dtype="float16", site=site, low=0.0, high=high, steps=3)
        for site, high in zip(LINES, (1.0, 60_000.0, 1.0, 60_000.0), strict=True)
    )
    assert lines(ask(HalfNearOverflow(), OpRanges(3, calls), Amp())) == [2, 4]


def test_updates():
    each = (
        UpdateRow(
            at=at, optimizer="SGD", dtype="bfloat16", rate=1e-4, steps=5, asked=1000, kept=kept
        )
        for at, kept in enumerate((0, 900, 0, 900))
    )
    assert lines(ask(UpdatesRoundedAway(), rows(*each, sites=LINES))) == [2, 4]


def test_poisoned_checkpoints():
    def scanned(nan):
        tally = Tally(8, nan=nan, low=0.0, high=1.0)
        return Scan(
            "/a.pt", "torch zip", 9, tensors=(TensorFacts("w", "float32", (8,), "model", tally),)
        )

    table = Checkpoints(tuple(Checkpoint(scanned(nan)) for nan in (0, 1, 0, 2)))
    assert len(list(WeightsPoisoned().in_checkpoint(table))) == 2


GIB = 1 << 30


def test_devices_near_their_capacity():
    devices = tuple(
        DevicePeak(at, f"gpu{at}", used * GIB // 100, used * GIB // 100, GIB)
        for at, used in enumerate((10, 99, 10, 99))
    )
    found = list(ask(DeviceMemoryNearlyFull(), TraceMemory(devices)))
    assert ["gpu1" in found[0].message, "gpu3" in found[1].message, len(found)] == [True, True, 2]
