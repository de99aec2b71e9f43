"""The examples with each safe patch and without, from the same seeds: the same is trained."""

import json
import shutil

import pytest

from tests.rules.test_safe_patches import SAFE
from tests.test_examples import CASES, EXAMPLES, SLOW


def tried():
    for name, case in CASES.items():
        if not case["clean"]:
            mark = pytest.mark.slow if name.partition("/")[0] in SLOW else pytest.mark.full
            yield pytest.param(name, id=name, marks=mark)


@pytest.mark.parametrize("name", list(tried()))
def test_a_safe_patch_of_an_example_changes_no_bit(name, audit, tmp_path):
    shutil.copytree(EXAMPLES / name, tmp_path / "program")
    done = audit(
        *("run", CASES[name]["target"], "--select", ",".join(SAFE), "--out", "out", "--quiet"),
        *("--steps", "10", "--device", "cpu", "--verify", "--budget", "0"),
        cwd=tmp_path / "program",
        timeout=500,
    )
    assert done.returncode in (0, 1), done.stderr
    report = json.loads((tmp_path / "program" / "out" / "report.json").read_text())
    safe = [
        each for each in report["findings"] if each["remedy"]["safe"] and each["remedy"]["diff"]
    ]
    for finding in safe:
        assert finding["verified"]["same_result"], finding
        assert "bit-identical" in finding["verified"]["note"]
