"""``audit verify`` on real processes: the whole loop on the broken example, and what it refuses."""

import json
import os
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.warm import run_python

ROOT = Path(__file__).resolve().parent.parent.parent.parent
BROKEN = ROOT / "examples" / "energy_flow" / "broken" / "trainer.py"

TRAINER = """
    import os
    import torch

    torch.autograd.set_detect_anomaly(True)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(30)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        with open("log.txt", "a") as log:
            print("step", file=log)

    def unrepeatable():
        torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
        step()
"""


def audit(*arguments, cwd, code=0):
    """Run the command line; returns what it said on both streams."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    code_of_audit = "from auditor.cli.main import main; main()"
    words = tuple(map(str, arguments))
    done = run_python(code_of_audit, words, cwd=cwd, timeout=280, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def report(folder):
    loaded: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return loaded


def by_code(folder):
    return {finding["code"]: finding for finding in report(folder)["findings"]}


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A project with one audit of a small trainer, to be copied by each test."""
    home = tmp_path_factory.mktemp("verified") / "project"
    home.mkdir()
    (home / "trainer.py").write_text(textwrap.dedent(TRAINER))
    chosen = ("--select", "NUM009,GRAPH002", "--steps", "10", "--device", "cpu", "--quiet")
    audit("run", "trainer:step", "--out", "audit", *chosen, cwd=home)
    return home


@pytest.fixture
def project(audited):
    """The audited project, whose recording names this very folder."""
    for left in ("trainer.py", "audit"):
        kept = audited.parent / "kept" / left
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            shutil.move(audited / left, kept)
        (shutil.copytree if kept.is_dir() else shutil.copy)(kept, audited / left)
    yield audited
    shutil.rmtree(audited / "audit")


def test_a_patch_is_proven_to_be_better_and_the_project_stays_as_it_was(project):
    before = {path: path.read_bytes() for path in project.iterdir() if path.is_file()}
    assert {path.name for path in before} == {"trainer.py", "log.txt"}
    said = audit("verify", "audit", "--select", "NUM009", "--budget", "240", cwd=project)
    verified = by_code(project / "audit")["NUM009"]["verified"]
    assert verified["status"] == "better"
    assert verified["ratio_high"] < 1.0
    assert verified["same_result"] is True
    assert "bit-identical" in verified["note"]
    assert by_code(project / "audit")["GRAPH002"]["verified"] is None
    verification = report(project / "audit")["verification"]
    assert verification["repeatable"]
    assert verification["codes"] == ["NUM009"]
    assert len(verification["noise"]) == 2
    assert "x faster [" in said
    assert "same losses with the patch for NUM009" in " ".join(said.split())
    assert "x faster [" in (project / "audit" / "report.html").read_text()
    assert {path: path.read_bytes() for path in project.iterdir() if path.is_file()} == before


NEEDS_ITS_GRAPH = """
    import torch

    torch.autograd.set_detect_anomaly(True)
    layer, head, states = torch.nn.Linear(8, 8), torch.nn.Linear(8, 4), []
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)

    def step():
        states.append(layer(torch.randn(4, 8)).relu())
        loss = head(states[-1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_patch_that_changes_the_result_is_broken_and_dropped(tmp_path):
    (tmp_path / "trainer.py").write_text(textwrap.dedent(NEEDS_ITS_GRAPH))
    chosen = ("--select", "NUM009,GRAPH001", "--steps", "10", "--device", "cpu", "--quiet")
    audit("run", "trainer:step", "--out", "audit", *chosen, cwd=tmp_path)
    assert by_code(tmp_path / "audit")["GRAPH001"]["remedy"]["safe"] is False
    said = audit("verify", "audit", "--unsafe", "--budget", "0", cwd=tmp_path)
    found = by_code(tmp_path / "audit")
    assert found["GRAPH001"]["verified"]["status"] == "broken"
    assert found["GRAPH001"]["verified"]["same_result"] is False
    assert found["NUM009"]["verified"]["same_result"] is True
    patch = (tmp_path / "audit" / "fixes.patch").read_text()
    assert "set_detect_anomaly(False)" in patch
    assert ".detach()" not in patch
    assert "patch left out" in said
    assert "left out" in audit("fix", "audit", "--unsafe", cwd=tmp_path)


def test_a_target_that_runs_only_once_still_has_its_report(project):
    flag = project.parent / "ran"
    once = (
        f"import os\nassert not os.path.exists({str(flag)!r}), 'twice'\nopen({str(flag)!r}, "
        "'w').close()\nfrom trainer import step\n"
    )
    (project / "once.py").write_text(once)
    chosen = ("--select", "NUM009", "--steps", "10", "--device", "cpu", "--verify", "--quiet")
    audit("run", "once:step", "--out", "other", *chosen, cwd=project)
    try:
        assert by_code(project / "other")["NUM009"]["verified"] is None
        (said,) = [each for each in report(project / "other")["warnings"] if "not verified" in each]
        assert "does not run to its end any more" in said
        assert "twice" in said
    finally:
        shutil.rmtree(project / "other")
        (project / "once.py").unlink()


def test_a_file_that_changed_since_the_audit_is_refused(project):
    (project / "trainer.py").write_text((project / "trainer.py").read_text() + "\n")
    kept = (project / "audit" / "report.json").read_bytes()
    said = audit("verify", "audit", cwd=project, code=2)
    assert said.startswith("audit: trainer.py has changed since the audit")
    assert (project / "audit" / "report.json").read_bytes() == kept


def test_without_a_recording_or_a_patch_there_is_nothing_to_run(project):
    assert "nothing to verify" in audit("verify", "audit", "--select", "SYNC", cwd=project)
    shutil.rmtree(project / "audit" / "recording")
    assert "is not beside it" in audit("verify", "audit", cwd=project, code=2)


CONFIGURED = """
    import torch
    import yaml

    settings = yaml.safe_load(open("conf.yaml"))
    model = torch.nn.Linear(8, 8)

    def step():
        torch.autograd.set_detect_anomaly(settings["debug"])
        model(torch.ones(4, 8)).square().mean().backward()
"""


def test_a_patch_of_a_configuration_file_is_tried(tmp_path):
    (tmp_path / "trainer.py").write_text(textwrap.dedent(CONFIGURED))
    (tmp_path / "conf.yaml").write_text("debug: true\n")
    chosen = ("--select", "NUM009", "--steps", "10", "--device", "cpu", "--quiet")
    how = ("--out", "out", *chosen, "--verify", "--budget", "0")
    audit("run", "trainer:step", *how, cwd=tmp_path)
    finding = by_code(tmp_path / "out")["NUM009"]
    assert "conf.yaml" in finding["remedy"]["diff"]
    assert finding["verified"]["same_result"] is True


def test_what_no_run_reads_is_known_before_one(project):
    manifest = project / "audit" / "recording" / "manifest.json"
    told = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**told, "target_files": []}))
    said = audit("verify", "audit", "--budget", "0", cwd=project)
    assert "NUM009 trainer.py:5: not tried; the target reads no trainer.py" in said
    assert "nothing to verify" in said and "round 1" not in said


def test_a_report_does_not_say_where_its_program_is_run(project):
    manifest = project / "audit" / "recording" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(str(project), str(project.parent)))
    said = audit("verify", "audit", cwd=project, code=2)
    assert f"this was recorded in {project.parent}" in said and "Traceback" not in said
