"""Trainers with planted defects and their right twins: run by hand with ``AUDITOR_CORPUS=FOLDER``
(a few minutes).

tests/test_examples.py does the same on the project's own examples, always.
"""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("AUDITOR_CORPUS") or os.devnull)
SAMPLES = sorted(path.parent.name for path in CORPUS.glob("*/trainer.py"))

pytestmark = pytest.mark.skipif(not SAMPLES, reason="AUDITOR_CORPUS names no folder of trainers")

FAMILIES = {
    "host-sync": {"SYNC001", "SYNC002", "SYNC003", "SYNC005"},
    "anomaly-mode": {"NUM009"},
    "retained-graph": {"GRAPH002"},
    "graph-growth": {"GRAPH001"},
    "empty-cache": {"SYNC009"},
    "reset-peak-stats": {"SYNC009"},
    "explicit-sync": {"SYNC004"},
    "device-resident-loader": {"DATA009"},
    "nonfinite-forward": {"NUM002"},
    "input-bound": {"DATA007"},
    "zero-grad": {"OPT002"},
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory, audit):
    folder = tmp_path_factory.mktemp("corpus")

    def one(name):
        shutil.copytree(CORPUS / name, folder / name)
        done = audit(
            "run", "trainer:step", "--steps", "30", "--out", "out", cwd=folder / name, timeout=400
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return json.loads((folder / name / "out" / "report.json").read_text())

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(SAMPLES, pool.map(one, SAMPLES), strict=True))


def truths(name: str) -> list[dict[str, str]]:
    """The expected defects of a sample: scalars of each item of ``expected`` (a flat reading of the
    YAML, which is enough).
    """
    found: list[dict[str, str]] = []
    inside = False
    for line in (CORPUS / name / "truth.yaml").read_text().splitlines():
        if line.startswith("expected:"):
            inside = "[]" not in line
        elif inside and line.startswith("- id:"):
            found.append({})
        elif inside and line and not line.startswith((" ", "-")):
            inside = False
        elif inside and line.startswith("  ") and ": " in line and found:
            key, _, value = line.strip().partition(": ")
            found[-1].setdefault(key, value)
    return found


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("__ok")])
def test_right_twins_are_silent(reports, name):
    assert [f["message"] for f in reports[name]["findings"] if f["severity"] != "note"] == []


@pytest.mark.parametrize("name", [name for name in SAMPLES if name.endswith("__bad")])
def test_what_was_planted_is_found_at_its_line(reports, name):
    found = {
        (f["code"], f["site"]["file"], f["site"]["line"])
        for f in reports[name]["findings"]
        if f["site"]
    }
    for truth in truths(name):
        if truth["needs"] not in ("cpu", "cuda"):  # what needs a GPU is seen in the rehearsal
            continue
        wanted = {(code, truth["file"], int(truth["line"])) for code in FAMILIES[truth["family"]]}
        assert wanted & found, f"{truth['family']} at line {truth['line']} is not among {found}"
