"""The examples under a drill: what their write-ups say of the broken and the repaired trainers is
shown.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from auditor.runs.plan import Drill

pytestmark = pytest.mark.skipif(
    not os.environ.get("AUDITOR_SLOW"), reason="takes a minute: AUDITOR_SLOW=1 runs it"
)

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drilling = _load(Path(__file__).parent / "drilling.py")

CASES = {
    ("qc_trainer/broken", "oom"): (
        False,
        "backward was called again on the graph of the failed attempt",
    ),
    ("qc_trainer/repaired", "oom"): (True, "equal those of the undisturbed run bit for bit"),
    ("text_recogniser/broken", "nan"): (False, "the NaN reached 26 of 26 parameters at step 4"),
    ("text_recogniser/repaired", "nan"): (
        True,
        "The optimizer stepped at step 4 with finite gradients only",
    ),
}


@pytest.mark.parametrize(("name", "what"), CASES, ids="-".join)
def test_a_drill_tells_them_apart(tmp_path, name, what):
    survived, said = CASES[name, what]
    fault = Drill(what, 4, "gradient" if what == "oom" else "batch")
    trainer = ROOT / "examples" / name / "trainer.py"
    report = drilling.drilled(tmp_path, lambda: _load(trainer).step, fault, steps=8)
    everything = "\n".join([*(each.text for each in report.observations), report.verdict])
    assert report.survived is survived, everything
    assert said in everything
