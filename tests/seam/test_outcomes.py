"""Whatever the target does: a report on what was recorded, the exit code of the contract."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from auditor.runs import child_process
from auditor.runs.plan import Plan
from auditor.runs.progress import silent
from tests.lazily import Lazily

ROOT = Path(__file__).resolve().parent.parent.parent

TRAINER = """
    import os, signal, sys, time
    import torch

    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    n = 0

    def step():
        global n
        n += 1
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()

    def nothing():
        len("abc")

    @torch.no_grad()
    def evaluates():
        model(torch.ones(2, 8))

    def raises():
        step()
        if n == 9:
            raise ValueError("the ninth step is bad")

    def out_of_memory():
        step()
        if n == 9:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    def exits():
        step()
        if n == 9:
            sys.exit(7)

    def killed():
        step()
        if n == 9:
            os.kill(os.getpid(), signal.SIGKILL)

    def hangs():
        step()
        if n == 9:
            time.sleep(600)

    def generator():
        for _ in range(30):
            step()
            yield

    def short():
        for _ in range(4):
            step()
            yield

    class Trainer:
        def __init__(self):
            self.count = 0

        def step(self):
            step()

        def wants(self, batch, lr):
            pass

    trainer = Trainer()
    number = 3

    async def coroutine():
        step()
"""

ENDINGS = {
    "step": (0, "completed"),
    "generator": (0, "completed"),
    "nothing": (2, "completed"),
    "evaluates": (2, "completed"),
    "raises": (3, "raised"),
    "out_of_memory": (3, "oom"),
    "exits": (3, "raised"),
    "killed": (3, "killed"),
    "hangs": (3, "timeout"),
}

FULL = {"evaluates", "exits", "generator", "hangs", "out_of_memory"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("seam")
    (path / "mytrainer.py").write_text(textwrap.dedent(TRAINER))
    return path


@pytest.fixture(scope="module")
def endings(folder, audit):
    """Every ending that is asked for: (finished process, report, folder)."""

    def one(name):
        out = folder / f"out-{name}"
        more = ("--timeout", "25") if name == "hangs" else ()
        words = f"run mytrainer:{name} --steps 8 --warmup 2 --device cpu --out"
        done = audit(words, str(out), *more, cwd=folder)
        return done, json.loads((out / "report.json").read_text()), out

    return Lazily(one)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name in FULL)) for name in ENDINGS]
)
def test_exit_code_and_outcome(endings, name):
    done, report, out = endings[name]
    code, outcome = ENDINGS[name]
    assert done.returncode == code, done.stderr
    assert report["run"]["outcome"] == outcome
    assert (out / "report.html").stat().st_size > 10_000
    assert done.stdout.rstrip().endswith("report.html")


@pytest.mark.parametrize(
    "name",
    [
        "raises",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("out_of_memory", "exits")),
    ],
)
def test_the_error_is_the_users_own(endings, name):
    done, report, _ = endings[name]
    error = report["run"]["error"]
    assert error["step"] == 8  # the ninth, as the program counts: two of them were the warm-up
    assert error["pass_name"] == "quiet"
    assert f"in {name}" in error["traceback"]
    assert "auditor" not in error["traceback"]
    assert report["run"]["step_us"]["n"] == 6
    assert error["message"].split("(")[0].strip() in done.stdout


@pytest.mark.full
def test_a_hanging_target_says_where(endings):
    _, report, _ = endings["hangs"]
    trace = report["run"]["error"]["traceback"]
    assert "in hangs" in trace
    assert "auditor" not in trace


@pytest.mark.full
def test_a_generator_that_ends_is_run_again_with_passes_that_fit(endings):
    _, report, _ = endings["generator"]
    assert report["run"]["step_us"]["n"] >= 8


@pytest.mark.full
def test_a_target_may_import_torch_in_its_first_step(tmp_path, audit):
    (tmp_path / "late.py").write_text(
        "def step():\n    import torch\n    torch.ones(3, requires_grad=True).sum().backward()\n"
    )
    out = tmp_path / "out"
    done = audit("run late:step --steps 4 --warmup 1 --device cpu --out", str(out), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "report.json").read_text())["run"]["outcome"] == "completed"


def test_nothing_was_left_unsaid_when_killed(endings):
    _, report, _ = endings["killed"]
    assert report["run"]["error"]["type"] == "SIGKILL"
    assert report["run"]["step_us"]["n"] >= 5
    assert {verdict["status"] for verdict in report["verdicts"]} <= {"clean", "skipped", "found"}
    assert any(verdict["status"] == "skipped" for verdict in report["verdicts"])


IMPOSSIBLE = {
    "mytrainer:stp": "did you mean 'step'?",
    "mytrainr:step": "did you mean 'mytrainer'?",
    "mytrainer:Trainer": "is a class",
    "mytrainer:trainer.wants": "wants arguments (batch, lr)",
    "mytrainer:number": "is an int",
    "mytrainer:coroutine": "coroutine",
    "mytrainer": "is not a target",
    "mytrainer:": "is not a target",
    "mytrainr.py": "did you mean 'mytrainer.py'?",
    "mytrainer:short": "ended after 4 steps",
    "broken_import:step": "ZeroDivisionError",
    "no_steps.py": "without a single optimizer.step()",
    "bad_syntax.py": "is not valid Python",
}


@pytest.fixture(scope="module")
def impossible(folder, audit):
    (folder / "broken_import.py").write_text("x = 1 / 0\n")
    (folder / "no_steps.py").write_text("import torch\nprint(torch.ones(2).sum())\n")
    (folder / "bad_syntax.py").write_text("def f(:\n")
    unclosed = {"PYTHONWARNINGS": "error::ResourceWarning"}  # a file that we leave open
    return Lazily(lambda target: audit("run", target, "--steps", "8", cwd=folder, **unclosed))


SENTENCES = ("mytrainer:stp", "mytrainer:short", "mytrainr.py", "broken_import:step")
"""Those that every ``make test`` asks for."""


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(target, marks=[pytest.mark.full] * (target not in SENTENCES))
        for target in IMPOSSIBLE
    ],
)
def test_what_cannot_be_audited_gets_one_clear_sentence(impossible, folder, target):
    done = impossible[target]
    raised = "broken_import" in target  # its own code, as a script's would
    assert done.returncode == (3 if raised else 2)
    assert IMPOSSIBLE[target] in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_users_own_rules_and_reports_packages_do_not_clash(folder, audit):
    for name in ("rules", "reports"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text(f"MINE = {name!r}\n")
    (folder / "clashing.py").write_text(
        "import rules, reports\nassert (rules.MINE, reports.MINE) == ('rules', 'reports')\nfrom "
        "mytrainer import step\n"
    )
    done = audit(
        "run clashing:step --steps 6 --warmup 1 --device cpu --out",
        str(folder / "out-clash"),
        "--quiet",
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(folder / "out-clash" / "report.html")


@pytest.mark.full
def test_impossible_audits_leave_nothing_behind(impossible, folder):
    for target in IMPOSSIBLE:
        impossible[target]
    assert not list((folder / "audits").glob("*")) if (folder / "audits").exists() else True


def started(folder, out):
    """An audit of a target that hangs, once it has recorded some steps."""
    options = ["--steps", "8", "--warmup", "2", "--device", "cpu", "--out", str(out)]
    code = "from auditor.cli.main import main; main()"
    command = [sys.executable, "-c", code, "run", "mytrainer:hangs", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    rows = out / "recording" / "steps.jsonl"
    for _ in range(600):
        if rows.exists() and rows.read_text().count("\n") >= 8:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    return process


def test_interrupt_reports_what_there_is(folder):
    out = folder / "out-interrupted"
    process = started(folder, out)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    run = json.loads((out / "report.json").read_text())["run"]
    assert run["outcome"] == "interrupted"
    frames = run["error"]["traceback"].splitlines()
    assert "in hangs" in frames[0] and "time.sleep(600)" in frames[1] and len(frames) <= 3
    assert "in hangs" in said and "auditor" not in said and "Traceback" not in said


@pytest.mark.full
def test_a_target_that_drops_ctrl_c_is_asked_again(folder):
    """An import or the program may swallow the first one."""
    (folder / "drops.py").write_text(
        "import time\nfrom mytrainer import step as once\n\ndef step():\n    try:\n        once()\n"
        "        time.sleep(0.2)\n    except KeyboardInterrupt:\n        if not dropped:\n"
        "            dropped.append(1)\n        else:\n            raise\n\ndropped = []\n"
    )
    plan = Plan(
        f"{folder / 'drops.py'}:step", (), 1000, 2, "cpu", str(folder / "dropping"), ("steps",)
    )
    child = child_process.Child(plan, silent, lambda text: None)
    rows = folder / "dropping" / "steps.jsonl"
    while not rows.is_file() or rows.read_text().count("\n") < 4:
        time.sleep(0.1)
    child.end(signal.SIGINT)
    child.leave()
    assert child_process.seal(plan, "interrupted", child).manifest["finished"]


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux ends the child")
def test_a_killed_audit_leaves_no_process_behind(folder):
    process = started(folder, folder / "out-of-a-killed-parent")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
