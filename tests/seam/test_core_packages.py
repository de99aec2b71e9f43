"""What pip installs without ``[all]`` is enough for an audit, and what needs more says so."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

MISSING = """
from importlib.machinery import PathFinder

EXTRA = {"plotly", "pandas", "tensorboard", "torch_tb_profiler", "safetensors"}
find = PathFinder.find_spec


def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in EXTRA else find(name, path, target)


PathFinder.find_spec = classmethod(find_spec)
"""

TRAINER = """
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
kept = []


def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).pow(2).mean()
    loss.backward()
    optimizer.step()
    kept.append(loss)
"""


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """Runs Python where the packages of ``[all]`` cannot be found, in a folder with a trainer."""
    there, boot = tmp_path_factory.mktemp("there"), tmp_path_factory.mktemp("boot")
    (boot / "sitecustomize.py").write_text(MISSING)
    (there / "trainer.py").write_text(TRAINER)

    def run(*arguments, code=0):
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(boot), str(ROOT)))}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=there,
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    said = run(
        *("-m", "auditor", "run", "trainer:step", "--steps", "6", "--device", "cpu"),
        *("--out", "out"),
    )
    return run, there / "out", said


def test_an_audit_needs_no_more_and_says_what_is_missing(core):
    _, out, said = core
    assert "GRAPH001" in said
    assert "tensorboard" not in said.lower()  # nobody asked for it
    assert list(out.glob("tensorboard/*/*.pt.trace.json.gz"))
    page = (out / "report.html").read_text()
    assert re.search(r'<figure class="chart".*?<svg', page, re.DOTALL)
    assert len(page) < 1_000_000


def test_a_quiet_audit_does_not_say_it_each_time(core):
    run, _, _ = core
    said = run("-m", "auditor", "analyze", "out", "--tensorboard", "--quiet", "--out", "again")
    assert said.splitlines()[-1] == "again/report.html"
    assert "scalars" not in said
    said = run("-m", "auditor", "analyze", "out", "--tensorboard", "--out", "loud")
    assert "loud/tensorboard holds no scalars" in said


def test_figures_by_plotly_say_what_to_install(core):
    run, _, _ = core
    said = run("-m", "auditor", "analyze", "out", "--interactive-figures", code=2)
    assert "Traceback" not in said
    assert "--interactive-figures needs plotly" in said
    assert "pip install 'torch-step-audit[all]'" in said


def test_view_says_what_to_install(core):
    run, _, _ = core
    said = run("-m", "auditor", "view", "out", "--port", "0", code=2)
    assert "Traceback" not in said
    assert "pip install 'torch-step-audit[all]'" in said


def test_a_table_says_what_to_install(core):
    run, _, _ = core
    code = (
        "from auditor.api import Report\n"
        "from auditor.errors import AuditProblem\n"
        "from auditor.reports import as_json\n"
        "from pathlib import Path\n"
        "import dataclasses\n"
        "read = as_json.read(Path('out/report.json'))\n"
        "held = {f.name: getattr(read, f.name) for f in dataclasses.fields(read)}\n"
        "try:\n    Report(**held).to_pandas()\n"
        "except AuditProblem as problem:\n    print(problem.message, problem.hint)\n"
    )
    assert "torch-step-audit[all]" in run("-c", code)


def test_all_brings_every_package_of_the_mission():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {
        re.split(r"[<>=!~;\[ ]", line)[0]
        for line in (*project["dependencies"], *project["optional-dependencies"]["all"])
    }
    assert names >= {"torch", "tensorboard", "torch-tb-profiler", "pandas", "plotly", "click"}
    core = {re.split(r"[<>=!~;\[ ]", line)[0] for line in project["dependencies"]}
    assert not core & {"tensorboard", "torch-tb-profiler", "pandas", "plotly"}
