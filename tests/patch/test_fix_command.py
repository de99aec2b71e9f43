"""``audit fix --apply``: files change once, a patch takes it back, changed files are refused."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from auditor.reports import as_json
from click.testing import CliRunner

from auditor.cli import rejudged
from auditor.cli.main import main
from auditor.model import Edit, Finding, PeakBytes, Remedy, Report, Run, Severity, Site
from auditor.model.sections import Verified
from auditor.patch import apply_edits, made_already, plan
from auditor.recordings.folder import SCHEMA, write_manifest
from auditor.recordings.writer import store_sources

SOURCE = b"""\
import torch  # caf\xc3\xa9
torch.autograd.set_detect_anomaly(True)
total = 0
def step(loss):
    global total
    loss.backward(retain_graph=True)
    total += loss
"""


def _finding(code, line, *edits, verified=None):
    site = Site("train.py", line, "step", SOURCE.decode().splitlines()[line - 1].strip())
    remedy = Remedy(code, tuple(replace(each, site=site, safe=True) for each in edits))
    said = {"code": code, "key": code, "severity": Severity.WARNING}
    return Finding(site, code, **said, remedy=remedy, verified=verified)


HERE = Site("", 0)
OFF = Edit(HERE, "rename_call", "set_detect_anomaly", value="set_detect_anomaly(False)")
ANOMALY = _finding("NUM009", 2, OFF)
RETAIN = _finding("GRAPH002", 6, Edit(HERE, "drop_keyword", "backward", "retain_graph"))
DETACH = _finding("GRAPH001", 7, Edit(HERE, "detach"))
ALL = (
    SOURCE.replace(b"(True)", b"(False)", 1)
    .replace(b"retain_graph=True", b"")
    .replace(b"total += loss", b"total += loss.detach()")
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in a git repository, and the folder of its audit."""
    monkeypatch.setattr(rejudged, "judged_again", lambda report, recording: report)
    (tmp_path / "train.py").write_bytes(SOURCE)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    _write_report(ANOMALY, RETAIN, DETACH)
    (tmp_path / "audit" / "recording").mkdir()
    _record(tmp_path, "train.py")
    return tmp_path


def _record(root, *names):
    recording = root / "audit" / "recording"
    stored = store_sources(recording, str(root), iter([str(root / name) for name in names]))
    manifest = {"schema": SCHEMA, "cwd": str(root), "sources": stored, "outcome": "completed"}
    write_manifest(recording, manifest)


def _undo(project):
    subprocess.run(["git", "apply", "audit/fixes.undo.patch"], check=True, cwd=project)
    return (project / "train.py").read_bytes()


def _write_report(*findings):
    run = Run("t", 1, 0, 1, "cpu", "completed", None, None, PeakBytes(), "", "", "")
    Path("audit").mkdir(exist_ok=True)
    Path("audit/report.json").write_bytes(as_json.Json().render(Report(run, (), findings)))


def _fix(*arguments):
    return CliRunner().invoke(main, ["fix", "audit", *arguments])


def test_applying_twice_changes_nothing_and_says_so(project):
    assert _fix("--apply").exit_code == 0
    assert (project / "train.py").read_bytes() == ALL
    again = _fix("--apply")
    assert again.exit_code == 0
    assert "applied already: train.py" in again.stderr
    assert (project / "train.py").read_bytes() == ALL
    assert "applied already" in _fix().stderr
    assert _fix().stdout == ""


def test_one_after_the_other_comes_to_the_same_and_one_patch_undoes_all(project):
    for codes in ("NUM009", "GRAPH002", "GRAPH"):
        assert _fix("--apply", "--select", codes).exit_code == 0
    assert (project / "train.py").read_bytes() == ALL
    assert _undo(project) == SOURCE


@pytest.mark.parametrize("before", [SOURCE, ALL])
def test_a_file_that_changed_is_refused_and_stays_as_it_is(project, before):
    changed = before + b"print('new')\n"
    (project / "train.py").write_bytes(changed)
    refused = _fix("--apply")
    assert refused.exit_code == 2
    assert "train.py changed since the audit" in refused.stderr
    assert (project / "train.py").read_bytes() == changed
    assert not (project / "audit" / "fixes.undo.patch").exists()
    assert _fix().stdout == ""


@pytest.mark.parametrize("word", [(), ("--check",), ("--apply",)])
def test_another_folder_is_not_a_file_that_changed(project, word, monkeypatch):
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    refused = CliRunner().invoke(main, ["fix", str(project / "audit"), *word])
    assert refused.exit_code == 2
    assert f"train.py is not in {project / 'elsewhere'}" in refused.stderr
    assert f"cd {project}" in refused.stderr
    assert refused.stdout == ""


def test_the_way_there_is_as_a_shell_takes_it(project, monkeypatch):
    file = project / "audit" / "recording" / "manifest.json"
    manifest = json.loads(file.read_text())
    file.write_text(json.dumps({**manifest, "cwd": "/my runs; true"}))
    (project / "elsewhere").mkdir()
    monkeypatch.chdir(project / "elsewhere")
    refused = CliRunner().invoke(main, ["fix", str(project / "audit")])
    assert "cd '/my runs; true'" in refused.stderr


def test_a_check_of_a_file_that_changed_is_not_green(project):
    (project / "train.py").write_bytes(SOURCE + b"print('new')\n")
    refused = _fix("--check")
    assert refused.exit_code == 2
    assert "train.py changed since the audit; nothing was checked" in refused.stderr


def test_a_copy_of_the_project_elsewhere_is_patched_there(project, monkeypatch):
    (project / "checkout").mkdir()
    (project / "checkout" / "train.py").write_bytes(SOURCE)
    monkeypatch.chdir(project / "checkout")
    assert CliRunner().invoke(main, ["fix", str(project / "audit"), "--check"]).exit_code == 1


def test_a_patch_that_breaks_the_result_is_left_out(project):
    broken = Verified(
        "broken", 1.0, None, None, None, None, same_result=False, note="loss 1 is 2 instead of 1"
    )
    _write_report(ANOMALY, _finding("GRAPH001", 7, Edit(HERE, "detach"), verified=broken))
    done = _fix("--apply")
    assert "GRAPH001 train.py:7: left out: loss 1 is 2 instead of 1" in done.stderr
    assert (project / "train.py").read_bytes() == SOURCE.replace(b"(True)", b"(False)", 1)


def test_a_report_without_its_recording_shows_its_diffs_and_is_not_applied(project):
    shown = replace(ANOMALY, remedy=replace(ANOMALY.remedy, diff="--- a/train.py\n+two\n"))
    _write_report(shown, RETAIN)
    (project / "audit" / "recording" / "manifest.json").unlink()
    for word in ("--apply", "--check"):
        refused = _fix(word)
        assert refused.exit_code == 2 and "recording" in refused.stderr
    printed = _fix()
    assert printed.exit_code == 0 and "--apply" in printed.stderr
    assert "+two" in printed.stdout.splitlines()
    assert (project / "train.py").read_bytes() == SOURCE


@pytest.mark.parametrize("chosen", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_edits_that_were_made_are_told_from_the_bytes(chosen):
    edits = [edit for each in (ANOMALY, RETAIN, DETACH) for edit in each.remedy.edits]
    made = tuple(edits[number] for number in chosen)
    current = apply_edits(SOURCE, made) if made else SOURCE
    assert made_already(SOURCE, current, edits) == made
    assert made_already(SOURCE, current + b"# mine\n", edits) is None


def test_undoing_takes_back_what_was_applied_in_several_goes(project):
    (project / "model.py").write_bytes(SOURCE)
    _record(project, "train.py", "model.py")
    elsewhere = replace(RETAIN.site, file="model.py")
    edit = replace(RETAIN.remedy.edits[0], site=elsewhere)
    remedy = replace(RETAIN.remedy, edits=(edit,))
    _write_report(ANOMALY, replace(RETAIN, site=elsewhere, key="other", remedy=remedy))
    assert _fix("--apply", "--select", "NUM009").exit_code == 0
    assert _fix("--apply", "--select", "GRAPH002").exit_code == 0
    assert (project / "train.py").read_bytes() != SOURCE != (project / "model.py").read_bytes()
    assert _undo(project) == SOURCE == (project / "model.py").read_bytes()


def test_a_link_in_a_strangers_folder_is_not_written_through(project):
    mine = project / "mine.sh"
    mine.write_text("mine")
    (project / "audit" / "fixes.undo.patch").symlink_to(mine)
    assert _fix("--apply").exit_code == 0
    assert mine.read_text() == "mine"
    assert _undo(project) == SOURCE


def test_nothing_is_patched_where_the_way_back_cannot_be_kept(project):
    (project / "audit" / "fixes.undo.patch").mkdir()
    done = _fix("--apply")
    assert done.exit_code == 2
    assert "cannot be written" in done.output and "Traceback" not in done.output
    assert (project / "train.py").read_bytes() == SOURCE


@pytest.mark.parametrize("file", ["/dev/zero", "../../../dev/zero", "train.py/../../secret.py"])
def test_a_file_outside_is_not_even_read(project, file):
    (project.parent / "secret.py").write_bytes(SOURCE)
    site = Site(file, 6, "step", "loss.backward(retain_graph=True)")
    edit = Edit(site, "drop_keyword", "backward", "retain_graph", "", safe=True)
    seen: list[str] = []
    planned = plan([edit], lambda path: seen.append(path))
    assert not planned.files and not seen and "outside" in planned.refused[0][1]


def test_ranks_that_cannot_be_read_are_one_sentence(project):
    shutil.rmtree(project / "audit" / "recording")
    for rank in range(2):
        folder = project / "audit" / "recording" / f"rank{rank}"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{")
    done = CliRunner().invoke(main, ["fix", "audit"])
    assert done.exit_code == 2
    assert "no recording of a rank that can be read" in done.output
    assert "fault of the auditor" not in done.output
