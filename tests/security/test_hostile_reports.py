"""Strangers' reports: none of their edits is made; what rules ask is made in the user's sources."""

import json
import subprocess

import pytest
from auditor.reports import as_json
from click.testing import CliRunner

from auditor.cli import rejudged
from auditor.cli.main import main
from auditor.model import Edit, Finding, PeakBytes, Remedy, Report, Run, Severity, Site
from auditor.recordings.folder import SCHEMA, write_manifest
from auditor.recordings.writer import store_sources

SOURCE = """\
import os
import torch
from torch.utils.data import DataLoader

value = os.getenv(command)
state = torch.load(path, weights_only=True)
loader = DataLoader(data, batch_size=4)
loss.backward(retain_graph=True)
"""

OTHER = {
    "venv/pyvenv.cfg": "",
    "venv/train.py": SOURCE,
    ".venv/lib/train.py": SOURCE,
    ".git/hooks/train.py": SOURCE,
    ".hidden/train.py": SOURCE,
    "site-packages/train.py": SOURCE,
    "node_modules/train.py": SOURCE,
    "ignored/train.py": SOURCE,
    "Makefile": SOURCE,
}


def _edit(marker, action, file="train.py", **parts):
    """An edit of the one line that holds the marker."""
    lines = SOURCE.splitlines()
    (line,) = [number for number, text in enumerate(lines, 1) if marker in text]
    return Edit(Site(file, line, "", lines[line - 1]), action, **parts)  # type: ignore[arg-type]


PINNED = {"keyword": "pin_memory", "call": "DataLoader", "value": "True", "safe": True}
GOOD = _edit("DataLoader(", "set_keyword", **PINNED)
HOSTILE: dict[str, tuple[str, Edit]] = {
    "another function": (
        "NUM009",
        _edit("getenv", "rename_call", call="getenv", value="system(command)"),
    ),
    "weights_only": (
        "DATA003",
        _edit("weights_only", "set_keyword", call="load", keyword="weights_only", value="False"),
    ),
    "no such rule": ("EVIL001", _edit("weights_only", "drop_keyword", call="load")),
    "no code": ("", GOOD),
    "what a rule could ask for": ("DATA003", GOOD),
    "a dropped statement": ("SYNC009", _edit("loss.backward", "drop_statement", call="backward")),
}
NOT_OWN = [
    *(file for file in OTHER if file != "venv/pyvenv.cfg"),
    *("link.py", "linked/train.py", "ignored/../.venv/lib/train.py", "../outside/train.py"),
    *("/usr/lib/python3/dist-packages/train.py", "", "a\0.py"),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project in a git repository, with all kinds of files that are no source of the user's."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "train.py").write_text(SOURCE)
    root = tmp_path / "project"
    for file, text in {"train.py": SOURCE, ".gitignore": "ignored/\n", **OTHER}.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)
    (root / "link.py").symlink_to(outside / "train.py")
    (root / "linked").symlink_to(outside)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    monkeypatch.chdir(root)
    return root


def report_of(folder, code, *edits):
    """A report with one finding that asks for the edits."""
    run = Run("train:step", 5, 1, 1, "cpu", "completed", None, None, PeakBytes(), "2", "3", "")
    site = edits[0].site if edits else None
    finding = Finding(
        site, "m", code=code, key=code, severity=Severity.WARNING, remedy=Remedy("t", edits)
    )
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_bytes(as_json.Json().render(Report(run, (), (finding,))))
    return folder


def recorded(project, *edits, code="DATA003", **manifest):
    """A report with these edits, and beside it a recording in which no rule finds anything."""
    folder = report_of(project / "audit", code, *(edits or (GOOD,)))
    sources = store_sources(folder / "recording", str(project), iter([str(project / "train.py")]))
    said = {
        "schema": SCHEMA,
        "cwd": str(project),
        "target": "train:step",
        "sources": sources,
        "outcome": "completed",
    }
    passes = [{"name": "quiet", "steps": 5}]
    write_manifest(
        folder / "recording", {**said, "device": "cpu", "passes": passes, "argv": [], **manifest}
    )


def _state(root):
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _fix(*words):
    return CliRunner().invoke(main, ["fix", "audit", *words])


@pytest.mark.parametrize("name", HOSTILE)
def test_no_edit_is_read_from_a_report(project, name):
    code, edit = HOSTILE[name]
    recorded(project, edit, code=code)
    before = _state(project.parent)
    for words in ((), ("--apply",), ("--unsafe", "--apply")):
        done = _fix(*words)
        assert done.exit_code == 0 and "nothing to patch" in done.stderr, done.output
        assert done.stdout == ""
    (project / "audit" / "recording" / "manifest.json").unlink()
    assert _fix("--unsafe", "--apply").exit_code == 2
    (project / "audit" / "recording" / "manifest.json").write_bytes(
        before[str(project / "audit" / "recording" / "manifest.json")]
    )
    assert _state(project.parent) == before


def test_a_report_cannot_bring_a_patch_of_its_own(project):
    """Diffs and proposals are texts: none is applied, no file is written from them."""
    recorded(project)
    report = json.loads((project / "audit" / "report.json").read_text())
    evil = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-import os\n+import evil\x1b[2J\n"
    report["findings"][0]["remedy"]["diff"] = evil
    (project / "audit" / "report.json").write_text(json.dumps(report))
    done = _fix("--apply", "--unsafe")
    assert "evil" not in done.output and (project / "train.py").read_text() == SOURCE
    (project / "audit" / "recording" / "manifest.json").unlink()
    assert "\x1b" not in _fix("--unsafe").output


# -- what rules ask for ----------------------------------------------------------------------------


@pytest.fixture
def as_told(monkeypatch):
    """The rules find again what the report says."""
    monkeypatch.setattr(rejudged, "judged_again", lambda report, recording: report)


@pytest.mark.usefixtures("as_told")
@pytest.mark.parametrize("file", NOT_OWN)
def test_only_the_users_own_sources_are_patched(project, file):
    recorded(project, _edit("DataLoader(", "set_keyword", file, **PINNED))
    before = _state(project.parent)
    done = _fix("--apply")
    assert "not patched" in done.stderr and "Traceback" not in done.output, done.output
    assert _state(project.parent) == before


@pytest.mark.usefixtures("as_told")
def test_what_can_be_patched_is_beside_what_cannot(project):
    recorded(project, _edit("DataLoader(", "set_keyword", "../outside/train.py", **PINNED), GOOD)
    done = _fix("--apply")
    assert done.exit_code == 0 and "not patched: ../outside/train.py" in done.stderr
    assert "pin_memory=True" in (project / "train.py").read_text()


@pytest.mark.usefixtures("as_told")
def test_git_runs_nothing_that_the_repository_names(project):
    for setting in ("core.fsmonitor", "core.hooksPath"):
        subprocess.run(["git", "-C", str(project), "config", setting, "touch evil #"], check=True)
    recorded(project)
    assert _fix("--unsafe").exit_code == 0
    assert not list(project.rglob("evil"))


# -- verify ----------------------------------------------------------------------------------------


PAYLOAD = "from pathlib import Path\nPath('owned').touch()\n\n\ndef step():\n    pass\n"


@pytest.mark.parametrize(
    "target",
    [
        "os:abort",
        "-m http.server",
        "-m pip",
        "torch:seed",
        "audit/payload.py:step",
        "audit/payload.py",
        "audit.payload:step",
        ".venv/lib/train.py",
        "venv/train.py:step",
        "ignored/train.py",
        "link.py:step",
        "linked/train.py",
        "../outside/train.py",
        "/usr/lib/python3/dist-packages/train.py:step",
        "stranger.py:step",
        "nothing:step",
    ],
)
def test_verify_runs_nothing_but_the_users_own_recorded_program(project, target):
    recorded(project, target=target)
    for file in ("audit/payload.py", "stranger.py"):
        (project / file).write_text(PAYLOAD)
    before = _state(project.parent)
    done = CliRunner().invoke(main, ["verify", "audit", "--unsafe", "--budget", "0"])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output and len(done.stderr.strip().splitlines()) <= 2
    assert _state(project.parent) == before


def test_verify_tries_nothing_that_a_report_asks_for(project, monkeypatch):
    monkeypatch.setattr("auditor.extensions.verify.command.Laboratory", None)  # nothing may run
    for code, edit in HOSTILE.values():
        recorded(project, edit, code=code)
        done = CliRunner().invoke(main, ["verify", "audit", "--unsafe", "--budget", "0"])
        assert done.exit_code == 0 and "nothing to verify" in done.output, done.output
