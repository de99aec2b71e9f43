"""Rules whose finding on the CPU is true on the GPU's path too: a rehearsal adds lines of its own and
takes none back.
"""

import pytest

from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest

RULE = catalogue.rule("NUM002")


def bad(step: int) -> dict:
    tensor = {"name": "weight", "shape": [2], "value": "nan"}
    what = {"last_good": step - 1, "what": "parameter", "tensors": [tensor], "n": 1}
    return {"pass": "loud", "step": step, "global_step": step, **what}


def made(folder, device: str, at: int | None, *, looked: bool = True) -> None:
    writer = RecordingWriter(folder)
    for step in range(6):
        writer.add_fields("steps", {"pass": "loud", "step": step, "us": 1000.0})
    if looked:
        writer.touch("nonfinite")
    if at is not None:
        writer.add_fields("nonfinite", bad(at))
    writer.close()
    facts = {"schema": SCHEMA, "cwd": str(folder), "device": device, "outcome": "completed"}
    write_manifest(folder, {**facts, "sources": {}, "environment": {}})


@pytest.mark.parametrize(
    ("cpu", "gpu", "said"),
    [
        (2, 4, ("cpu", 2)),  # the same NaN twice is one finding, with the CPU's line
        (2, None, ("cpu", 2)),  # 40 steps on the CPU see more than the rehearsal's 12
        (None, 4, ("rehearsal", 4)),  # what only half precision does
        (None, None, None),
    ],
)
def test_the_rehearsal_decides_where_the_cpu_found_nothing(tmp_path, cpu, gpu, said):
    made(tmp_path / "r", "cpu", cpu)
    made(tmp_path / "r" / "rehearsal", "rehearse", gpu)
    judged = engine.judge(Evidence(Recording(tmp_path / "r")), (RULE,))
    found = [(each.seen_on, f"by step {said[1]}" in each.message) for each in judged.findings]
    assert found == ([] if said is None else [(said[0], True)])
    assert judged.verdicts[0].status == ("clean" if said is None else "found")


def test_a_rehearsal_in_which_no_optimizer_stepped_leaves_the_cpus_word(tmp_path):
    made(tmp_path / "r", "cpu", None)
    made(tmp_path / "r" / "rehearsal", "rehearse", None, looked=False)
    judged = engine.judge(Evidence(Recording(tmp_path / "r")), (RULE,))
    assert judged.verdicts[0].status == "clean"


PARTS = {"OPT007": "schedulers", "OPT006": "clippings", "OPT005": "uncleared"}
ONE_CYCLE = {"name": "OneCycleLR", "calls": 2, "steps": 60, "in_pass": 20, "apart": 20, "epoch": 3}
ONE_CYCLE |= {"epoch_of": 20}
CLIPPED = {"optimizer": "SGD", "steps": 12, "n": 12, "absent": True}
PILED = {"backward_at": None, "optimizer": "SGD", "steps": 12, "piled": 11}


def lines(folder, device: str, code: str, row: dict, numbers: list[int]) -> None:
    """A recording that has the row, of those that the rule reads, at these lines of a file."""
    part = PARTS[code]
    writer = RecordingWriter(folder)
    for step in range(12):
        writer.add_fields("steps", {"pass": "loud", "step": step, "us": 1000.0})
    for each in engine.parts_of([catalogue.rule(code)]):
        writer.touch(each)
    for line in numbers:
        at = writer.site("train.py", line, "main")
        writer.add_fields(part, {"pass": "loud", "step": 11, "at": at, **row})
    writer.close()
    facts = {"schema": SCHEMA, "cwd": str(folder), "device": device, "outcome": "completed"}
    write_manifest(folder, {**facts, "sources": {}, "environment": {}})


@pytest.mark.parametrize(
    ("code", "row"), [("OPT007", ONE_CYCLE), ("OPT006", CLIPPED), ("OPT005", PILED)]
)
@pytest.mark.parametrize(
    ("cpu", "gpu", "said"),
    [([5], [], {5}), ([], [7], {7}), ([5], [7], {5, 7}), ([5], [5], {5}), ([], [], set())],
)
def test_lines_that_no_device_decides_are_told_of_both(tmp_path, code, row, cpu, gpu, said):
    lines(tmp_path / "r", "cpu", code, row, cpu)
    lines(tmp_path / "r" / "rehearsal", "rehearse", code, row, gpu)
    judged = engine.judge(Evidence(Recording(tmp_path / "r")), (catalogue.rule(code),))
    assert sorted(each.site.line for each in judged.findings) == sorted(said)
    assert judged.verdicts[0].status == ("found" if said else "clean")
