"""What is said of a recording whose process was on the null device: bytes and counts, no times, and
nothing of values.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from auditor.reports import renderer
from auditor.rules.num.backward import GradientNorms
from auditor.rules.num.nonfinite import Nonfinite
from auditor.rules.num.rows import UpdateRow

from auditor.evidence.recorded.amp import Amp, OpRanges
from auditor.evidence.table import Evidence, Rows, Table
from auditor.judging import build_report
from auditor.judging.engine import Judgement
from auditor.model import Finding, Report, Severity, Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.rule import NotLooked

PARTS = ("nonfinite", "norms", "numerics", "updates")


def recorded(folder: Path, device: str) -> Recording:
    writer = RecordingWriter(folder)
    site = {"id": 0, "file": "t.py", "line": 1}
    writer.add_fields("sites", site)
    for part in PARTS:
        writer.touch(part)
    for name in ("warmup", "loud"):
        row = {"pass": name, "step": 0, "us": 1234.0, "start_us": 0.0, "allocated": 512}
        writer.add_fields("steps", row)
    scale = {"pass": "loud", "step": 0, "what": "update", "at": 0, "before": 2.0, "after": 0.0}
    writer.add_fields("amp", scale)
    writer.close()
    manifest = {"schema": SCHEMA, "target": "t:step", "cwd": str(folder), "device": device}
    manifest |= {"outcome": "completed", "steps": 1}
    manifest |= {"passes": [{"name": "warmup", "steps": 1}, {"name": "loud", "steps": 1}]}
    manifest |= {"environment": {"device": "NVIDIA L4 (null device)"}}
    write_manifest(folder, manifest)
    return Recording(folder)


@pytest.mark.parametrize("table", [Nonfinite, GradientNorms, OpRanges, Rows[UpdateRow]])
def test_no_values_are_read_of_a_device_without_values(tmp_path: Path, table: type[Table]) -> None:
    with pytest.raises(NotLooked, match="values are zeros"):
        Evidence(recorded(tmp_path / "null", "null")).get(table)
    assert Evidence(recorded(tmp_path / "cuda", "cuda")).get(table) is not None


def test_a_scale_of_zero_is_no_scale_that_came_down(tmp_path: Path) -> None:
    assert Evidence(recorded(tmp_path / "null", "null")).get(Amp).updates == ()
    assert Evidence(recorded(tmp_path / "cuda", "cuda")).get(Amp).skipped


def rendered(name: str, made: Report) -> str:
    done = renderer(name).render(made)
    return done.decode() if isinstance(done, bytes) else done


def report(folder: Path, device: str) -> Report:
    found = Finding(
        Site("t.py", 1), "seen", severity=Severity.WARNING, code="SYNC001", seen_on="null", steps=1
    )
    found = replace(found, key="k", name="scalar read")
    return build_report.report(Evidence(recorded(folder, device)), Judgement((), (found,), ()), ())


def test_every_page_says_that_no_gpu_took_part(tmp_path: Path) -> None:
    made = report(tmp_path, "null")
    text = rendered("terminal", made)
    assert "t:step: 1 step on a null device (no GPU)" in " ".join(text.split())
    assert "step time" not in text
    for page in (text, rendered("html", made), rendered("github", made)):
        assert "this ran on a null device, torch's own CUDA code without a GPU" in " ".join(
            page.replace("&#39;", "'").split()
        )
    assert "seen on a null device" in rendered("html", made)
    written = json.loads(rendered("json", made))
    assert (written["run"]["device"], written["run"]["step_us"]) == ("null", None)
    assert written["findings"][0]["seen_on"] == "null"
