"""A line opens in an editor only where its file lies here as it was recorded."""

import hashlib
import json

import pytest
from auditor.reports import as_json

from auditor.cli import write_results
from auditor.errors import AuditProblem
from auditor.judging import catalogue, config
from auditor.model import Site, editors
from auditor.recordings.folder import SCHEMA, Recording
from tests.reports import golden_report as golden

TEXT = b"x = 1\ny = 2\n"


@pytest.fixture
def recording(tmp_path):
    project, folder = tmp_path / "my project", tmp_path / "recording"
    project.mkdir()
    (folder / "sources").mkdir(parents=True)
    (project / "train.py").write_bytes(TEXT)
    name = f"{hashlib.sha256(TEXT).hexdigest()[:16]}-train.py"
    (folder / "sources" / name).write_bytes(TEXT)
    manifest = {"schema": SCHEMA, "cwd": str(project), "sources": {"train.py": name}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return Recording(folder)


SITES = (Site("train.py", 2, "step", "y = 2"), None, Site("gone.py", 1, "f", ""))


def links(recording, template=editors.DEFAULT):
    return write_results.links(recording, SITES, template)


def test_a_file_that_lies_here_as_it_was_recorded(recording, tmp_path):
    path = str(tmp_path).lstrip("/")
    assert links(recording) == {"train.py:2": f"vscode://file/{path}/my%20project/train.py:2"}
    assert links(recording, "") == {}


@pytest.mark.parametrize("now", [b"x = 1\ny = 3\n", b"", None], ids=["edited", "emptied", "gone"])
def test_a_file_that_is_another_one_by_now_has_no_link(recording, tmp_path, now):
    path = tmp_path / "my project" / "train.py"
    path.unlink() if now is None else path.write_bytes(now)
    assert links(recording) == {}


def test_links_stay_on_this_machine():
    from dataclasses import replace

    told = {"train.py:2": "vscode://file/home/me/train.py:2"}
    report = replace(golden.rich_report(), editor_links=told)
    written = as_json.Json().render(report)
    assert b"vscode" not in written and b"editor_links" not in written
    smuggled = json.loads(written) | {"editor_links": told}
    assert as_json.load(json.dumps(smuggled).encode()).editor_links == {}


def settings(tmp_path, line):
    (tmp_path / "pyproject.toml").write_text(f"[tool.audit]\n{line}\n")
    return config.load(tmp_path, catalogue.rules()).editor


def test_the_setting(tmp_path):
    assert settings(tmp_path, "") == editors.DEFAULT
    assert settings(tmp_path, 'editor = ""') == ""
    own = "cursor://file/{path}:{line}"
    assert settings(tmp_path, f'editor = "{own}"') == own
    for value in ('"javascript:{path}"', '"https://x/{path}"', "7", '"vscode://file"'):
        with pytest.raises(AuditProblem, match="editor = "):
            settings(tmp_path, f"editor = {value}")
