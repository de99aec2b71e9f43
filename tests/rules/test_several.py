"""Rules that tell of several lines: one behind an innocent one is told, and so are two."""

from auditor.rules.num.nonfinite import WeightsPoisoned

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.scans import ElementCounts, Scan, TensorFacts

CPU, CUDA = Machine("cpu", 8), Machine("cuda", 8, capability=8)


def lines(findings):
    return [each.site.line for each in findings]


def test_poisoned_checkpoints():
    def scanned(nan):
        tally = ElementCounts(8, nan=nan, low=0.0, high=1.0)
        return Scan(
            "/a.pt", "torch zip", 9, tensors=(TensorFacts("w", "float32", (8,), "model", tally),)
        )

    table = Checkpoints(tuple(Checkpoint(scanned(nan)) for nan in (0, 1, 0, 2)))
    assert len(list(WeightsPoisoned().in_checkpoint(table))) == 2
