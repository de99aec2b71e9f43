"""Reports that somebody wrote by hand: each asks for an edit that no rule would ask for, and
nothing of it is made or shown.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from auditor.reports import as_json
from click.testing import CliRunner, Result

from auditor.cli.main import main
from auditor.judging import catalogue
from auditor.model import Edit, Finding, PeakBytes, Remedy, Report, Run, Severity, Site
from auditor.permit import outside
from auditor.recordings.folder import SCHEMA, write_manifest
from auditor.recordings.sources import store_sources

SOURCE = """\
import gc
import os
import pickle
import requests
import subprocess
import torch
import torch as th
from os import system as synchronize
from torch.utils.data import DataLoader
from elsewhere import AdamW
import threading as nn

optimizer = torch.optim.Adam(model.parameters())
value = os.getenv(command)
state = torch.load(path, weights_only=True)
loader = DataLoader(data, batch_size=4, num_workers=cfg.workers)
reply = requests.get(url, verify=True, allow_redirects=False)
done = subprocess.run(command, shell=False)
model.to(device)
nn.Conv2d(3, 3, 3)
rows = requests.Session().item()
DEBUG = False
workers = 0
allow = True
verify = 1
synchronize()
gc.collect(erase())
torch.cuda.empty_cache()
log = os.log(os.softmax(x, -1))
exact = torch.log(torch.softmax(x, -1))
torch.backends.cudnn.benchmark = True
settings.benchmark = True
loss.backward()
AdamW(model.parameters(), foreach=False)
parser.add_argument("--workers", default=0)
parser.add_argument("--danger", default=0)
pickle.load(file, encoding="latin1")
print(loss.item())
os.remove(name, dir_fd=None)
loss.backward(retain_graph=launch())
torch.cuda.synchronize(device=launch())
root = torch.sqrt(x)
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
    "train.sh": "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\nexport LD_PRELOAD=a\n",
    "config.yaml": "workers: 0\ndebug: false\nshell: false\nport: 80\n",
    "Makefile": SOURCE,
}


def _edit(marker: str, action: str, file: str = "train.py", **parts: Any) -> Edit:
    """An edit of the one line that holds the marker."""
    lines = (
        SOURCE.splitlines()
        if file not in OTHER or OTHER[file] == SOURCE
        else OTHER[file].splitlines()
    )
    (line,) = [number for number, text in enumerate(lines, 1) if marker in text]
    return Edit(Site(file, line, "", lines[line - 1]), action, **parts)  # type: ignore[arg-type]


WORKERS = {"keyword": "num_workers", "call": "DataLoader", "value": "2"}
PINNED = {"keyword": "pin_memory", "call": "DataLoader", "value": "True", "safe": True}

HOSTILE: dict[str, tuple[str, Edit]] = {
    # what the issue names
    "another function": (
        "NUM009",
        _edit("getenv", "rename_call", call="getenv", value="system(command)"),
    ),
    "a name of no call": ("NUM009", _edit("getenv", "rename_call", call="getenv", value="system")),
    "weights_only": (
        "DATA003",
        _edit("weights_only", "set_keyword", call="load", keyword="weights_only", value="False"),
    ),
    "weights_only dropped": (
        "GRAPH002",
        _edit("weights_only", "drop_keyword", call="load", keyword="weights_only"),
    ),
    "a shell": (
        "DATA004",
        _edit("shell=", "set_keyword", call="run", keyword="shell", value="True"),
    ),
    "no certificate": (
        "OPT001",
        _edit("verify=True", "set_keyword", call="get", keyword="verify", value="False"),
    ),
    # codes
    "no such rule": (
        "EVIL001",
        _edit("weights_only", "set_keyword", call="load", keyword="weights_only", value="False"),
    ),
    "no code": ("", _edit("DataLoader(", "set_keyword", **WORKERS)),
    "a rule without edits": (
        "SYNC006",
        _edit("model.to", "set_keyword", call="to", keyword="non_blocking", value="True"),
    ),
    "another rule's edit": ("SYNC004", _edit("DataLoader(", "set_keyword", **WORKERS)),
    # values
    "a value that runs": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "value": "launch()"}),
    ),
    "a name as value": (
        "DATA003",
        _edit("DataLoader(", "set_keyword", **{**PINNED, "value": "command"}),
    ),
    "a thousand workers": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "value": "1000"}),
    ),
    "a value of another kind": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "value": "True"}),
    ),
    "the wrong flag": (
        "DATA003",
        _edit("DataLoader(", "set_keyword", **{**PINNED, "value": "False"}),
    ),
    "a line feed in a value": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "value": "2\n"}),
    ),
    "more than a value": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "value": "2, launch()"}),
    ),
    "a log of each step": ("SYNC001", _edit("print", "throttle", value="1000000")),
    "called safe": ("DATA007", _edit("DataLoader(", "set_keyword", **WORKERS, safe=True)),
    # keywords and calls
    "another keyword": (
        "DATA007",
        _edit("DataLoader(", "set_keyword", **{**WORKERS, "keyword": "worker_init_fn"}),
    ),
    "what a name only looks like": (
        "OPT001",
        _edit("AdamW(", "set_keyword", call="AdamW", keyword="foreach", value="True"),
    ),
    "an import in disguise": (
        "SYNC004",
        _edit("synchronize()", "drop_statement", call="synchronize"),
    ),
    "a module in disguise": (
        "CFG002",
        _edit("nn.Conv2d", "set_keyword", call="Conv2d", keyword="bias", value="False"),
    ),
    "the standard library": (
        "OPT002",
        _edit("dir_fd", "drop_keyword", call="remove", keyword="set_to_none"),
    ),
    "a keyword that is not there": (
        "GRAPH002",
        _edit("pickle.load(", "set_keyword", call="load", keyword="retain_graph", value="False"),
    ),
    "arguments that run when it is undone": (
        "SYNC009",
        _edit("gc.collect(", "drop_statement", call="collect"),
    ),
    "a statement that runs when it is undone": (
        "SYNC004",
        _edit("device=launch", "drop_statement", call="synchronize"),
    ),
    "a dropped keyword that runs": (
        "GRAPH002",
        _edit("retain_graph=", "drop_keyword", call="backward", keyword="retain_graph", safe=True),
    ),
    "a dropped call": ("SYNC009", _edit("requests.get", "drop_statement", call="get")),
    "another log": (
        "NUM008",
        _edit("os.log", "rename_call", call="log", value="log_softmax(x, -1)"),
    ),
    "other arguments": (
        "NUM008",
        _edit("exact", "rename_call", call="log", value="log_softmax(launch(), -1)"),
    ),
    "another root": (
        "NUM008",
        _edit("torch.sqrt", "rename_call", call="sqrt", value="sqrt(launch())"),
    ),
    "an item of something else": (
        "SYNC001",
        _edit("print", "rename_call", call="item", value="detach(launch())"),
    ),
    # calls that are put in
    "a call put in": ("OPT005", _edit("loss.backward()", "insert_before", value="os.remove(path)")),
    "a method put in": (
        "OPT005",
        _edit("loss.backward()", "insert_before", value="os.zero_grad()"),
    ),
    "a scaler that is none": (
        "AMP006",
        _edit("loss.backward()", "insert_before", value="os.unscale_(command)"),
    ),
    "an import put in": (
        "AMP002",
        _edit("optimizer =", "insert_after_imports", value="os.system(command)"),
    ),
    # settings that stand apart
    "a flag that nobody takes": (
        "DATA003",
        _edit("DEBUG =", "set_constant", keyword="DEBUG", value="True", safe=True),
    ),
    "a number for a flag": (
        "DATA007",
        _edit("allow =", "set_constant", keyword="allow", value="2"),
    ),
    "a number that nobody takes": (
        "DATA007",
        _edit("verify =", "set_constant", keyword="verify", value="2"),
    ),
    "a constant by its place": (
        "DATA007",
        Edit(Site("train.py", 1), "set_constant", value="2", span=(22, 22, 8, 13)),
    ),
    "another's benchmark": (
        "CFG001",
        _edit("settings.benchmark", "set_constant", keyword="benchmark", value="False"),
    ),
    "another option": (
        "DATA007",
        _edit("--danger", "set_keyword", call="add_argument", keyword="default", value="2"),
    ),
    "another setting": (
        "DATA007",
        _edit("port", "set_value", "config.yaml", keyword='["port"]', value="81"),
    ),
    "another flag": (
        "DATA003",
        _edit("shell", "set_value", "config.yaml", keyword='["shell"]', value="True", safe=True),
    ),
    "a library": (
        "MEM009",
        _edit(
            "PRELOAD",
            "set_value",
            "train.sh",
            keyword="LD_PRELOAD",
            value="expandable_segments:True",
        ),
    ),
    "an allocator": (
        "MEM009",
        _edit(
            "ALLOC",
            "set_value",
            "train.sh",
            keyword="PYTORCH_CUDA_ALLOC_CONF",
            value="backend:cudaMallocAsync",
            safe=True,
        ),
    ),
    # files
    **{
        f"a file: {file}": ("DATA003", _edit("DataLoader(", "set_keyword", file, **PINNED))
        for file, text in OTHER.items()
        if text == SOURCE
    },
    "a file: link.py": ("DATA003", _edit("DataLoader(", "set_keyword", "link.py", **PINNED)),
    "a file: linked/train.py": (
        "DATA003",
        _edit("DataLoader(", "set_keyword", "linked/train.py", **PINNED),
    ),
    "a way round": (
        "DATA003",
        _edit("DataLoader(", "set_keyword", "ignored/../.venv/lib/train.py", **PINNED),
    ),
    "another's file": (
        "DATA003",
        _edit("DataLoader(", "set_keyword", "/usr/lib/python3/dist-packages/train.py", **PINNED),
    ),
    "no name": ("DATA003", _edit("DataLoader(", "set_keyword", "", **PINNED)),
    "a name that cannot be": ("DATA003", _edit("DataLoader(", "set_keyword", "a\0.py", **PINNED)),
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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


def report_of(folder: Path, code: str, *edits: Edit) -> Path:
    """A report with one finding that asks for the edits."""
    run = Run("train:step", 5, 1, 1, "cpu", "completed", None, None, PeakBytes(), "2", "3", "")
    site = edits[0].site if edits else None
    finding = Finding(
        site, "m", code=code, key=code, severity=Severity.WARNING, remedy=Remedy("t", edits)
    )
    folder.mkdir(exist_ok=True)
    (folder / "report.json").write_bytes(as_json.Json().render(Report(run, (), (finding,))))
    return folder


def _state(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def _fix(*words: str) -> Result:
    return CliRunner().invoke(main, ["fix", "audit", *words])


@pytest.mark.parametrize("name", HOSTILE)
def test_what_no_rule_asks_for_is_refused(project: Path, name: str) -> None:
    code, edit = HOSTILE[name]
    report_of(project / "audit", code, edit)
    before = _state(project.parent)
    for words in ((), ("--apply",), ("--unsafe", "--apply"), ("--select", "KERN001", "--apply")):
        done = _fix(*words)
        assert done.exit_code == 2, done.output
        assert done.stdout == "" and "Traceback" not in done.output
        assert done.stderr.startswith("audit: ") and len(done.stderr.strip().splitlines()) <= 2, (
            done.stderr
        )
    assert _state(project.parent) == before


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 40


HONEST = {
    "workers": (
        "DATA007",
        _edit(
            "DataLoader(",
            "set_keyword",
            call="DataLoader",
            keyword="persistent_workers",
            value="True",
        ),
    ),
    "an option": (
        "DATA007",
        _edit("--workers", "set_keyword", call="add_argument", keyword="default", value="2"),
    ),
    "a constant": ("DATA007", _edit("workers = 0", "set_constant", keyword="workers", value="2")),
    "a setting": (
        "DATA007",
        _edit("workers", "set_value", "config.yaml", keyword='["workers"]', value="2"),
    ),
    "a variable": (
        "MEM009",
        _edit(
            "ALLOC",
            "set_value",
            "train.sh",
            keyword="PYTORCH_CUDA_ALLOC_CONF",
            value="expandable_segments:True",
            safe=True,
        ),
    ),
    "a log": ("NUM008", _edit("exact", "rename_call", call="log", value="log_softmax(x, -1)")),
    "a root": ("NUM008", _edit("torch.sqrt", "rename_call", call="sqrt", value="sqrt(x + 1e-12)")),
    "a switch": (
        "CFG001",
        _edit("cudnn.benchmark", "set_constant", keyword="benchmark", value="False"),
    ),
    "a cache": ("SYNC009", _edit("empty_cache", "drop_statement", call="empty_cache")),
    "cleared": ("OPT005", _edit("loss.backward()", "insert_before", value="optimizer.zero_grad()")),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_a_rule_asks_for_is_made(project: Path, name: str) -> None:
    code, edit = HONEST[name]
    if name == "cleared":
        text = SOURCE.replace("import gc\n", "optimizer.step()\n")
        (project / "train.py").write_text(text)
    report_of(project / "audit", code, edit)
    before = _state(project)
    done = _fix("--apply", "--unsafe")
    assert done.exit_code == 0 and "patched" in done.output, done.output
    assert _state(project) != before


def test_one_hostile_edit_is_enough_to_refuse_a_report(project: Path) -> None:
    good = HONEST["workers"][1]
    report_of(project / "audit", "DATA007", good, HOSTILE["a thousand workers"][1])
    before = _state(project)
    assert _fix("--apply", "--unsafe").exit_code == 2
    assert _state(project) == before


def test_a_project_that_git_ignores_as_a_whole_is_still_a_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = project / "ignored"
    monkeypatch.chdir(inner)
    report_of(inner / "audit", *HONEST["workers"])
    assert _fix("--apply", "--unsafe").exit_code == 0


def test_git_runs_nothing_that_the_repository_names(project: Path) -> None:
    for setting in ("core.fsmonitor", "core.hooksPath"):
        subprocess.run(["git", "-C", str(project), "config", setting, "touch evil #"], check=True)
    report_of(project / "audit", *HONEST["workers"])
    assert _fix("--unsafe").exit_code == 0
    assert not list(project.rglob("evil"))


# -- verify ----------------------------------------------------------------------------------------


def _recorded(
    project: Path, code: str = "DATA007", edit: Edit = HONEST["workers"][1], **manifest: Any
) -> None:
    folder = report_of(project / "audit", code, edit)
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
def test_verify_runs_nothing_but_the_users_own_recorded_program(project: Path, target: str) -> None:
    _recorded(project, target=target)
    for file in ("audit/payload.py", "stranger.py"):
        (project / file).write_text(PAYLOAD)
    before = _state(project.parent)
    done = CliRunner().invoke(main, ["verify", "audit", "--unsafe", "--budget", "0"])
    assert done.exit_code == 2, done.output
    assert "Traceback" not in done.output and len(done.stderr.strip().splitlines()) <= 2
    assert _state(project.parent) == before


@pytest.mark.parametrize("name", HOSTILE)
def test_verify_tries_nothing_that_no_rule_asks_for(
    project: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("auditor.extensions.verify.command.Laboratory", None)  # nothing may run
    _recorded(project, *HOSTILE[name])
    done = CliRunner().invoke(main, ["verify", "audit", "--unsafe", "--budget", "0"])
    assert done.exit_code == 2 and "Traceback" not in done.output, done.output


def test_a_report_cannot_bring_a_patch_of_its_own(project: Path) -> None:
    """Diffs and proposals are texts of a report: neither is applied, and no file is written from
    them.
    """
    folder = report_of(project / "audit", *HONEST["workers"])
    report = json.loads((folder / "report.json").read_text())
    evil = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-import gc\n+import evil\n"
    report["findings"][0]["remedy"]["diff"] = evil
    report["findings"][0]["remedy"]["edits"] = []
    (folder / "report.json").write_text(json.dumps(report))
    done = _fix("--apply", "--unsafe")
    assert "evil" not in done.output and (project / "train.py").read_text() == SOURCE


# -- the declarations ------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", catalogue.own_rules(), ids=lambda rule: rule.code)
def test_no_rule_may_write_whatever_it_likes(rule: Any) -> None:
    """Each value that a rule may write is plain, and none of its functions is one that does
    harm.
    """
    for kind in rule.edits:
        for value in ("launch()", "os.system(x)", "__import__('os')", "x; y", "\n", "lambda: 0"):
            edit = Edit(
                Site("a.py", 1),
                kind.action,
                (kind.calls or ("",))[0].rpartition(".")[2],
                kind.keyword,
                value,
            )
            assert outside(rule.edits, [edit]) is edit
        assert not any(name in ("load", "run", "system", "exec", "eval") for name in kind.calls)
