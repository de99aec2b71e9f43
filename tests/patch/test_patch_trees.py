"""Source beside the run's directory: whose it is, and a diff that git takes above both."""

import subprocess
import sysconfig
from pathlib import Path

import pytest
from auditor.reports import as_json
from click.testing import CliRunner

from auditor.cli import rejudged
from auditor.cli.main import main
from auditor.model import Edit, Finding, PeakBytes, Remedy, Report, Run, Severity, Site
from auditor.patch import Refused, is_theirs, plan, write
from auditor.patch.trees import is_beside
from auditor.recordings.folder import SCHEMA, write_manifest
from auditor.recordings.writer import store_sources

TRAIN = b"loss.backward(retain_graph=True)\n"
MODEL = b"x = x.to(device)\n"


def edits(model):
    train = Site("train.py", 1, text=TRAIN.decode().strip())
    other = Site(str(model), 1, text=MODEL.decode().strip())
    return [
        Edit(train, "drop_keyword", "backward", "retain_graph", safe=True),
        Edit(other, "set_keyword", "to", "non_blocking", "True", safe=True),
    ]


@pytest.fixture
def trees(tmp_path, monkeypatch):
    """The directory of a run, and a file of the source tree beside it, in no repository."""
    run, model = tmp_path / "work" / "exp", tmp_path / "work" / "src" / "models" / "net.py"
    run.mkdir(parents=True)
    model.parent.mkdir(parents=True)
    (run / "train.py").write_bytes(TRAIN)
    model.write_bytes(MODEL)
    monkeypatch.chdir(run)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return run, model


def git(*words, cwd, stdin=b""):
    return subprocess.run(["git", *words], cwd=cwd, input=stdin, capture_output=True, check=False)


def test_one_diff_for_both_trees_says_where_it_is_applied(trees):
    run, model = trees
    read = {"train.py": TRAIN, str(model): MODEL}.get
    planned = plan(edits(model), read, cwd=str(run))
    assert not planned.refused
    base = run.parent
    first, rest = planned.diff.split(b"\n", 1)
    assert first == f"The paths begin in {base}: git -C {base} apply".encode()
    assert b"--- a/exp/train.py\n" in rest and b"--- a/src/models/net.py\n" in rest
    done = git("apply", "-", cwd=base, stdin=planned.diff)
    assert done.returncode == 0, done.stderr
    assert (run / "train.py").read_bytes() == b"loss.backward()\n"
    assert model.read_bytes() == b"x = x.to(device, non_blocking=True)\n"
    assert git("apply", "-R", "-", cwd=base, stdin=planned.diff).returncode == 0
    assert model.read_bytes() == MODEL


def test_a_tree_is_theirs_by_pythonpath_or_by_git(trees, monkeypatch, tmp_path):
    run, model = trees
    assert not is_theirs(str(model), str(run))
    monkeypatch.setenv("PYTHONPATH", str(model.parent.parent))
    assert is_theirs(str(model), str(run))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    assert not is_theirs(str(model), str(run))
    git("init", "-q", cwd=run.parent)
    assert is_theirs(str(model), str(run))


def test_what_is_installed_or_linked_from_elsewhere_is_nobodys(trees, monkeypatch, tmp_path):
    run, model = trees
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "work"))
    installed = tmp_path / "work" / "lib" / "site-packages" / "net.py"
    library = Path(sysconfig.get_path("stdlib")) / "json" / "decoder.py"
    above = "../src/models/net.py"
    for path in (str(installed), str(library), f"{run}/{above}", above):
        assert not is_beside(path, str(run)) and not is_theirs(path, str(run)), path
    outside = tmp_path / "elsewhere.py"
    outside.write_bytes(MODEL)
    link = model.parent / "link.py"
    link.symlink_to(outside)
    assert not is_theirs(str(link), str(run))


def test_nothing_is_written_beside_without_a_reason(trees, monkeypatch):
    run, model = trees
    planned = plan(edits(model), {"train.py": TRAIN, str(model): MODEL}.get, cwd=str(run))
    with pytest.raises(Refused, match="PYTHONPATH does not name"):
        write(planned, run)
    assert (run / "train.py").read_bytes() == TRAIN and model.read_bytes() == MODEL
    monkeypatch.setenv("PYTHONPATH", str(model.parent.parent))
    write(planned, run)
    assert model.read_bytes() == b"x = x.to(device, non_blocking=True)\n"


def report_of(run, model):
    findings = []
    for code, edit in zip(("GRAPH002", "DATA004"), edits(model), strict=True):
        said = {"code": code, "key": str(edit.site), "severity": Severity.WARNING}
        findings.append(Finding(edit.site, "x", **said, remedy=Remedy("x", (edit,))))
    about = "train.py", 5, 1, 1, "cpu", "completed", None, None, PeakBytes(), "2.13", "3.11", ""
    report, recording = Report(Run(*about), (), tuple(findings)), run / "audit" / "recording"
    recording.mkdir(parents=True)
    (run / "audit" / "report.json").write_bytes(as_json.Json().render(report))
    stored = store_sources(recording, str(run), iter([str(run / "train.py"), str(model)]))
    manifest = {"schema": SCHEMA, "cwd": str(run), "sources": stored, "outcome": "completed"}
    write_manifest(recording, manifest)


@pytest.fixture
def edits_as_told(monkeypatch):
    """The recording of these reports holds nothing that a rule could judge again."""
    monkeypatch.setattr(rejudged, "judged_again", lambda report, recording: report)


@pytest.mark.usefixtures("edits_as_told")
def test_fix_applies_to_both_trees_and_takes_it_back(trees, monkeypatch):
    run, model = trees
    report_of(run, model)
    monkeypatch.setenv("PYTHONPATH", str(model.parent.parent))
    done = CliRunner().invoke(main, ["fix", "audit", "--apply"])
    assert done.exit_code == 0, done.output
    assert model.read_bytes() == b"x = x.to(device, non_blocking=True)\n"
    undo = run / "audit" / "fixes.undo.patch"
    assert f"git -C {run.parent} apply {undo} takes it back" in done.output
    assert git("-C", str(run.parent), "apply", str(undo), cwd=run).returncode == 0
    assert (run / "train.py").read_bytes() == TRAIN and model.read_bytes() == MODEL


@pytest.mark.usefixtures("edits_as_told")
def test_fix_leaves_a_tree_alone_that_nothing_names(trees):
    run, model = trees
    report_of(run, model)
    done = CliRunner().invoke(main, ["fix", "audit", "--apply"])
    assert done.exit_code == 0, done.output
    assert (
        f"not patched: {model} lies outside {run}; if it is yours, put PYTHONPATH={model.parent} "
        in done.output
    )
    assert (run / "train.py").read_bytes() == b"loss.backward()\n" and model.read_bytes() == MODEL
