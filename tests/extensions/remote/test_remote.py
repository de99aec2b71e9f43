"""``--on HOST``: a whole audit on another machine, and what goes wrong on the way."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.remote.machines import SSHD, Machine, machine, sshd

NAME = "a b;touch x.py"
"""A script whose name is a command for a shell that is not asked properly."""

TRAINS = """\
import sys
import torch

assert open(sys.argv[1].partition("=")[2]).read() == "small"
assert sys.argv[2:] == ["$(touch y)", "'"]
assert len(open("big.txt").read()) == 2 << 20
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    loss = model(torch.ones(4, 8)).square().mean()
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()
"""

QUICK = ("--device", "cpu", "--steps", "5", "--warmup", "1", "--select", "OPT002")


@pytest.fixture
def host(tmp_path: Path) -> Machine:
    made = machine(tmp_path)
    made.install()
    return made


@pytest.fixture
def real(tmp_path: Path) -> Iterator[Machine]:
    with sshd(tmp_path) as made:
        made.install()
        yield made


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "repository" / "my project"
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(folder.parent)], check=True)
    (folder / NAME).write_text(TRAINS)
    (folder / "small.txt").write_text("small")
    (folder / "big.txt").write_text("a" * (2 << 20))  # more than a copy takes: a link in it
    return folder


def audited(where: Machine, on: str, project: Path, *more: str) -> dict[str, Any]:
    """The report of a whole audit there."""
    words = ("run", NAME, "--on", on, "--out", "out", *QUICK, *more)
    args = (f"--data={project}/small.txt", "$(touch y)", "'")
    code, out, err = where.audit(*words, "--", *args, cwd=project)
    assert code == 0, err
    assert out.endswith("out/report.html\n")
    report: dict[str, Any] = json.loads((project / "out" / "report.json").read_text())
    return report


def require_whole(report: dict[str, Any], where: Machine, on: str, project: Path) -> None:
    """The finding is of the file here, its patch applies here, and nothing is left there."""
    (finding,) = report["findings"]
    assert (finding["code"], finding["site"]["file"]) == ("OPT002", NAME)
    assert report["environment"]["recorded on"] == on
    assert str(where.folder) not in json.dumps(report)
    assert where.left == []
    names = {each.name for each in project.iterdir()}
    assert names == {NAME, "small.txt", "big.txt", "out"}
    code, diff, _ = where.audit("fix", "out", "--unsafe", cwd=project)
    assert code == 0
    subprocess.run(["git", "apply"], cwd=project, input=diff, text=True, check=True)
    assert "optimizer.zero_grad()\n" in (project / NAME).read_text()


def test_a_whole_audit(host: Machine, project: Path) -> None:
    require_whole(audited(host, "user@gpu1", project), host, "user@gpu1", project)


@pytest.mark.full
def test_one_in_a_job_of_slurm(host: Machine, project: Path) -> None:
    on = "srun:--gres=gpu:1 --comment='a b'"
    report = audited(host, on, project)
    assert report["environment"]["recorded on"] == on
    options = (host.folder / "options").read_text().splitlines()
    assert options == ["--gres=gpu:1", "--comment=a b", "--ntasks=1"]
    assert host.left == []


@pytest.mark.full
@pytest.mark.skipif(SSHD is None, reason="there is no sshd")
def test_one_by_ssh(real: Machine, project: Path) -> None:
    report = audited(real, "gpu1", project, "--on-python", sys.executable)
    require_whole(report, real, "gpu1", project)


@pytest.mark.full
@pytest.mark.skipif(SSHD is None, reason="there is no sshd")
@pytest.mark.parametrize("on", ["refused", "no-key-of-mine"])
def test_a_host_that_lets_nobody_in(on: str, real: Machine, project: Path) -> None:
    code, out, err = real.audit("run", NAME, "--on", on, "--out", "out", cwd=project)
    assert (code, out) == (2, "")
    assert f"audit: {on} cannot be reached" in err
    assert not (project / "out").exists()


@pytest.mark.full
def test_patches_are_measured_there(host: Machine, project: Path) -> None:
    audited(host, "gpu1", project)
    words = ("verify", "out", "--on", "gpu1", "--unsafe", "--budget", "0")
    code, _, err = host.audit(*words, cwd=project)
    assert code == 0, err
    report = json.loads((project / "out" / "report.json").read_text())
    require_whole(report, host, "gpu1", project)
    assert report["findings"][0]["verified"]["status"]
    assert report["verification"]["runs"] >= 2


@pytest.mark.full
def test_and_at_once(host: Machine, project: Path) -> None:
    watched = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"  # its patch is a safe one
    (project / NAME).write_text(TRAINS.replace("import torch\n", watched))
    report = audited(host, "gpu1", project, "--select", "NUM009", "--verify", "--budget", "0")
    (finding,) = report["findings"]
    assert (finding["code"], finding["verified"]["same_result"]) == ("NUM009", True)
    assert host.left == []


@pytest.mark.full
def test_a_target_that_raises(host: Machine, project: Path) -> None:
    (project / "train.py").write_text(f"{TRAINS.replace('assert', '#')}\nraise SystemError('no')\n")
    words = ("run", "train.py", "--on", "gpu1", "--out", "out", "--device", "cpu", "--quiet")
    code, out, err = host.audit(*words, cwd=project)
    assert (code, out) == (3, "out/report.html\n"), err
    report = json.loads((project / "out" / "report.json").read_text())
    assert report["run"]["outcome"] == "raised"
    assert str(host.folder) not in json.dumps(report["run"])


@pytest.mark.full
def test_a_target_that_cannot_be_run(host: Machine, project: Path) -> None:
    (project / "train.py").write_text("import torch\n")
    words = ("run", "train.py:nothing", "--on", "gpu1", "--out", "out", "--device", "cpu")
    code, out, err = host.audit(*words, cwd=project)
    assert (code, out) == (2, "")
    assert "train has no 'nothing'" in err
    assert not (project / "out").exists()
    assert host.left == []


WAITS = f"""{TRAINS.replace("assert", "#")}
    print("AT WORK", flush=True)
    __import__("time").sleep(1)
"""


def at_work(host: Machine, project: Path) -> subprocess.Popen[str]:
    """An audit that has begun its steps there."""
    (project / "train.py").write_text(WAITS)
    words = ("run", "train.py", "--on", "gpu1", "--out", "out", "--device", "cpu")
    process = host.start(*words, cwd=project)
    assert process.stderr is not None
    for line in process.stderr:
        if "AT WORK" in line:
            return process
    raise AssertionError("it ended")


def test_ctrl_c_ends_it_and_brings_the_report(host: Machine, project: Path) -> None:
    process = at_work(host, project)
    assert len(host.left) >= 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=200)
    assert process.returncode == 130
    report = json.loads((project / "out" / "report.json").read_text())
    assert report["run"]["outcome"] == "interrupted"
    assert host.left == []


@pytest.mark.full
def test_nothing_stays_where_this_side_is_killed(host: Machine, project: Path) -> None:
    process = at_work(host, project)
    process.kill()
    process.communicate(timeout=200)
    assert host.empties()


def test_no_audit_there(tmp_path: Path, project: Path) -> None:
    bare = machine(tmp_path)
    code, out, err = bare.audit("run", NAME, "--on", "gpu1", "--out", "out", cwd=project)
    assert (code, out) == (2, "")
    assert "no audit on gpu1" in err
    assert not (project / "out").exists()
    assert bare.left == []


def test_a_lost_connection(host: Machine, project: Path) -> None:
    (host.path / "ssh").write_text("#!/bin/sh\nexit 255\n")
    code, out, err = host.audit("run", NAME, "--on", "gpu1", "--out", "out", cwd=project)
    assert (code, out) == (2, "")
    assert "gpu1 cannot be reached" in err
    assert not (project / "out").exists()


def test_options_against_each_other_are_refused_before_anything_is_sent(
    host: Machine, project: Path
) -> None:
    (host.path / "ssh").write_text(f"#!/bin/sh\ntouch {shlex.quote(str(host.folder / 'asked'))}\n")
    for wrong in (["--on=-oProxyCommand=x"], ["--on=gpu1", "--select=NO999"]):
        code, _, err = host.audit("run", NAME, *wrong, cwd=project)
        assert code == 2, err
    assert not (host.folder / "asked").exists()
    assert not (project / "audits").exists()


def test_help_imports_nothing_of_it() -> None:
    code = (
        "import sys\nfrom auditor.cli.main import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "assert not [name for name in sys.modules if name.startswith('auditor.extensions.')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
