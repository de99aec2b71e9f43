"""A rule of values: what the CPU finds is true on the GPU's path too, which is asked where it finds
nothing.
"""

from __future__ import annotations

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
