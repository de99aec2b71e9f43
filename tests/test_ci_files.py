"""What other systems read of this repository: the GitHub action, the GitLab template, the hook of
pre-commit and the problem matcher. They are read, and their commands run as far as that goes here.
"""

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from auditor.reports import failures, renderer, text
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.model import Finding, Severity, Site
from tests.reports import golden_attack
from tests.reports import golden_report as golden

ROOT = Path(__file__).resolve().parent.parent
STEP = """
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []

def step():
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    kept.append(loss)
"""


def read(name):
    return yaml.safe_load((ROOT / name).read_text("utf-8"))


def shell(script, cwd, **variables):
    bin_folder = Path(sys.executable).parent
    env = {**os.environ, "PATH": f"{cwd / 'bin'}:{bin_folder}:{os.environ['PATH']}", **variables}
    flags = ["--noprofile", "--norc", "-e", "-o", "pipefail", "-c"]  # as GitHub starts bash
    return subprocess.run(
        ["bash", *flags, script], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


@pytest.fixture
def stand_in(tmp_path):
    """An ``audit`` and a ``pip`` that write down what they are called with."""
    (tmp_path / "bin").mkdir()
    for name in ("audit", "pip", "python"):
        path = tmp_path / "bin" / name
        path.write_text(
            f'#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done > {tmp_path}/{name}.txt\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return lambda name: (tmp_path / f"{name}.txt").read_text().splitlines()


def parsed(words):
    """The options that the command line makes of the words; raises at an unknown one."""
    command = main.commands[words[0]]
    return command.make_context(words[0], list(words[1:])).params


# ---- GitHub --------------------------------------------------------------------------------------


def steps_of_action():
    action = read("action.yml")
    assert action["runs"]["using"] == "composite"
    return action, action["runs"]["steps"]


def test_the_action_is_well_formed_and_takes_no_input_into_its_script():
    action, steps = steps_of_action()
    assert set(action) == {"name", "description", "branding", "inputs", "outputs", "runs"}
    assert set(action["branding"]) == {"icon", "color"}
    for step in steps:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "inputs come by the environment, or could be a command"
    asked = set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", (ROOT / "action.yml").read_text()))
    assert asked == set(action["inputs"])
    assert all("default" in each or each.get("required") for each in action["inputs"].values())
    matcher = next(step["run"] for step in steps if "add-matcher" in step["run"])
    path = matcher.split("$GITHUB_ACTION_PATH/")[1].rstrip('"')
    assert (ROOT / path).is_file()


@pytest.mark.parametrize("there", [True, False])
def test_the_action_installs_torch_for_the_cpu_only_where_none_is(tmp_path, stand_in, there):
    _, (torch, ours, *_) = steps_of_action()
    python = tmp_path / "bin" / "python"
    if not there:
        python.write_text(python.read_text().replace("\n", '\n[ "$1" = -c ] && exit 1\n', 1))
    assert shell(torch["run"], tmp_path).returncode == 0
    if there:
        assert stand_in("python") == ["-c", "import torch"]
    else:
        assert stand_in("python")[:3] == ["-m", "pip", "install"]
        assert stand_in("python")[-3:-1] == ["torch", "--index-url"]
        assert stand_in("python")[-1].endswith("/cpu")
    assert shell(ours["run"], tmp_path, GITHUB_ACTION_PATH="/the action").returncode == 0
    assert stand_in("python")[-1] == "/the action"


@pytest.mark.parametrize("baseline", ["", "a b.json"])
def test_the_actions_command_line_is_one_that_audit_knows(tmp_path, stand_in, baseline):
    _, steps = steps_of_action()
    script = next(step["run"] for step in steps if step.get("id") == "audit")
    target = "trainer:step; touch broken"
    given = {"TARGET": target, "STEPS": "20", "FAIL_ON": "error", "BASELINE": baseline}
    done = shell(script, tmp_path, OUT="audit", GITHUB_OUTPUT="outputs", **given)
    assert done.returncode == 0, done.stderr
    options = parsed(stand_in("audit"))
    assert options["target"] == target and not (tmp_path / "broken").exists()
    assert (options["steps"], options["fail_on"]) == (20, "error")
    assert (options["baseline"] or "") == baseline
    assert (tmp_path / "outputs").read_text() == "report=audit/report.html\n"


@pytest.mark.full
def test_the_action_audits_a_step(tmp_path):
    _, steps = steps_of_action()
    (tmp_path / "trainer.py").write_text(STEP)
    last = steps[-1]["run"]
    script = next(step["run"] for step in steps if step.get("id") == "audit")
    given = {"TARGET": "trainer:step", "STEPS": "6", "FAIL_ON": "error", "BASELINE": ""}
    asked = {**given, "OUT": "audit", "GITHUB_OUTPUT": "outputs", "GITHUB_STEP_SUMMARY": "said"}
    done = shell(script, tmp_path, **asked)
    assert done.returncode in (0, 1), done.stderr
    assert "GRAPH001" in done.stdout and "::" in done.stdout
    assert {each.name for each in (tmp_path / "audit").iterdir()} >= {
        "report.html", "audit.sarif", "audit.md",
    }  # fmt: skip
    assert shell(last, tmp_path, **asked).returncode == 0
    assert "GRAPH001" in (tmp_path / "said").read_text()
    hook, _ = read(".pre-commit-hooks.yaml")
    waiting = shell(f"{hook['entry']} audit", tmp_path)
    assert waiting.returncode == 1, waiting.stderr
    assert waiting.stdout.startswith("trainer.py:12: ") and "GRAPH001" in waiting.stdout
    assert shell("audit fix --apply audit", tmp_path).returncode == 0
    applied = shell(f"{hook['entry']} audit", tmp_path)
    assert (applied.returncode, applied.stdout) == (0, "")
    assert "applied already" in applied.stderr
    assert shell("audit fix --check --apply audit", tmp_path).returncode == 2
    shutil.rmtree(tmp_path / "audit")
    assert shell(last, tmp_path, **asked).returncode == 0, "no report is no second failure"


def test_the_problem_matcher_reads_the_lines_of_tests_and_of_fix():
    (matcher,) = read("ci/problem-matcher.json")["problemMatcher"]
    (pattern,) = matcher["pattern"]
    site = Site("a b/train.py", 41, "step", "x")
    for level in Severity:
        made = Finding(site, "says: it", code="SYNC001", key="k", severity=level)
        for said in (failures.line(made), f"E   {failures.line(made)}"):
            found = re.match(pattern["regexp"], said)
            told = [found[pattern[part]] for part in ("line", "severity", "code", "message")]
            assert told == ["41", level.value, "SYNC001", "says: it"]
            assert found[pattern["file"]].removeprefix("a b/") in ("train.py", "a b/train.py")
    for said in ("INFO: 12: warning: x", "  price: 1.2 ms", "x.py:1: error: mypy says", ""):
        assert re.match(pattern["regexp"], said) is None


# ---- GitLab --------------------------------------------------------------------------------------


def test_the_gitlab_jobs_command_line_is_one_that_audit_knows(tmp_path, stand_in):
    (job,) = read("ci/gitlab.yml").values()
    done = shell("\n".join(job["script"]), tmp_path, **job["variables"])
    assert done.returncode == 0, done.stderr
    options = parsed(stand_in("audit"))
    assert options["target"] == "trainer:step" and not options["baseline"]
    written = job["artifacts"]["reports"]["codequality"]
    assert ("codequality", written) in tuple(options["formats"])
    assert stand_in("pip")[0] == "install"


@pytest.mark.parametrize("report", [golden.rich_report(), golden_attack.attack_report()])
def test_the_code_quality_report_is_what_gitlab_reads(report):
    rendered = renderer("codequality").render(report)
    issues = json.loads(rendered)
    assert len(issues) == len(report.findings) and rendered.isascii()
    for issue, finding in zip(issues, report.findings, strict=True):
        assert set(issue) == {
            "description", "check_name", "fingerprint", "severity", "location",
        }  # fmt: skip
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] >= 1 and issue["location"]["path"]
        assert "\n" not in issue["description"]
        remedy = finding.remedy.text if finding.remedy is not None else ""
        for said in (finding.message, remedy):
            assert text.visible(said)[:15].split("\n")[0] in issue["description"]
        if finding.site is not None and finding.site.line > 0:
            assert issue["location"]["lines"]["begin"] == finding.site.line
    prints = [issue["fingerprint"] for issue in issues]
    assert len(set(prints)) == len(prints)


def test_a_fingerprint_outlives_moved_lines_and_the_baseline_is_left_out():
    report = golden.rich_report()
    first = report.findings[0]
    moved = replace(first, site=replace(first.site, line=first.site.line + 9))

    def prints(*findings):
        issues = json.loads(renderer("codequality").render(replace(report, findings=findings)))
        return [issue["fingerprint"] for issue in issues]

    assert prints(first) == prints(moved)
    assert len(set(prints(first, first))) == 2
    assert prints(replace(first, baseline_state="unchanged")) == []


# ---- pre-commit ----------------------------------------------------------------------------------


def test_the_hooks_are_commands_that_audit_knows():
    hook, look = read(".pre-commit-hooks.yaml")
    given = parsed([*look["entry"].split()[1:], "a.py", "b.py"])
    assert given["files"] == ("a.py", "b.py") and given["fail_on"] == "warning"
    assert set(hook) >= {"id", "name", "entry", "language"} and not hook["pass_filenames"]
    first, *words = hook["entry"].split()
    assert first == "audit"
    options = parsed([*words, "audits/last"])
    assert options["check"] and not options["apply"] and options["report"] == "audits/last"


# -- Docker ----------------------------------------------------------------------------------------


def instructions():
    """Words of ci/Dockerfile, a list for each instruction."""
    text = (ROOT / "ci/Dockerfile").read_text("utf-8").replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return [shlex.split(line) for line in lines]


def of(name):
    return [words[1:] for words in instructions() if words[0] == name]


def test_the_image_is_made_of_what_the_package_is_made_of():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    allowed = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    ]
    copied = [(source, words[-1]) for words in of("COPY") for source in words[:-1]]
    assert sorted(source for source, _ in copied) == sorted(allowed)
    for source, to in copied:
        assert (ROOT / source).exists(), source
        assert to == (f"/src/{source}" if (ROOT / source).is_dir() else "/src/")
    wheel = project.partition("[tool.hatch.build.targets.wheel]")[2].partition(
        "[tool.hatch.build.targets.sdist]"
    )[0]
    packed = re.findall(r'^packages = \["(\w+)"\]$', wheel, re.MULTILINE) + re.findall(
        r'^"(\w+)" =', wheel, re.MULTILINE
    )
    assert set(packed) == {source for source, _ in copied if (ROOT / source).is_dir()}
    assert 'readme = "README.md"' in project, "the build reads it"


def test_the_image_has_the_torch_and_a_python_of_the_project():
    (torch,) = (words[0].removeprefix("TORCH=") for words in of("ARG"))
    assert f"TORCH ?= torch=={torch}\n" in (ROOT / "Makefile").read_text("utf-8")
    ((image,),) = of("FROM")
    version = image.removeprefix("python:").removesuffix("-slim")
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'"Programming Language :: Python :: {version}"' in project
    assert "all = [" in project
    first, second = of("RUN")
    assert first[-1] == "torch==${TORCH}" and "/src[all]" in second, (
        "torch first: a layer of its own"
    )


def test_the_image_starts_audit_and_not_as_root():
    names = [words[0] for words in instructions()]
    assert names[0] == "FROM" and names.index("USER") > max(
        i for i, name in enumerate(names) if name == "RUN"
    )
    ((user,),) = of("USER")
    assert user.split(":")[0] not in {"0", "root"}
    (entry,), (words,) = (
        [
            json.loads(line.partition(" ")[2])
            for line in (ROOT / "ci/Dockerfile").read_text("utf-8").splitlines()
            if line.startswith(name)
        ]
        for name in ("ENTRYPOINT", "CMD")
    )
    assert (
        f"{entry[0]} = "
        in (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.scripts]")[2]
    )
    assert CliRunner().invoke(main, words).exit_code == 0
