"""``audit doctor``: it answers on whatever machine, and whatever torch does when it is imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditor.cli import doctor
from auditor.cli.doctor import torch_facts
from tests.test_architecture import HEAVY

ROOT = Path(__file__).resolve().parents[2]

FACTS = {
    "version": "2.13.0+cu130",
    "file": "torch",
    "cuda": "13.0",
    "hip": None,
    "threads": 2,
    "distributed": True,
    "devices": [],
    "why": "Found no NVIDIA driver",
}
H200 = {"name": "NVIDIA H200", "memory": 150 << 30}


def checks(facts, why=""):
    return {each.name: each for each in doctor._checks(facts, why)}


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Another torch before the real one."""

    def write(body):
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(body)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))

    return write


BROKEN = {
    "raise OSError('libcudart.so.13: cannot open shared object file')": "libcudart.so.13",
    "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)": "ends the process: SIGSEGV",
    "import sys; sys.exit(3)": "it says nothing",
    "print('hello')": "AttributeError",
}


@pytest.mark.parametrize(("body", "said"), BROKEN.items(), ids=BROKEN.values())
def test_a_broken_torch_is_told(broken, body, said):
    broken(body)
    facts, why = torch_facts()
    assert facts is None and said in why
    check = checks(facts, why)["running a target"]
    assert check.status == "no" and said in check.said
    assert check.remedy.endswith("pip install torch")


def test_a_torch_that_hangs_is_given_up(broken, monkeypatch):
    broken("import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "PATIENCE_S", 0.2)
    assert torch_facts()[0] is None and "takes longer" in torch_facts()[1]


def test_the_command_exits_0_and_imports_nothing_heavy(broken, tmp_path):
    broken("raise ImportError('gone')")
    probe = (
        "import sys; from auditor.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: print('ENDED', end.code or 0)\n"
        f"print('LOADED', sorted({HEAVY!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", probe, "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    document, ended, loaded = done.stdout.rsplit("\n", 3)[:3]
    assert ended == "ENDED 0" and loaded == "LOADED []", done.stdout[-200:]
    assert "NO  running a target: torch: it cannot be imported: ImportError: gone" in document


def test_torch_of_this_environment_is_told(capsys):
    assert doctor.doctor() == 0
    shown = capsys.readouterr().out
    import torch

    assert f"YES  running a target: torch {torch.__version__}" in shown


def test_what_torch_must_be():
    old = checks({**FACTS, "version": "2.5.1"})["running a target"]
    assert old.status == "no" and old.remedy.endswith("pip install --upgrade torch")
    assert checks({**FACTS, "version": "2.8.0a0+git"})["running a target"].status == "yes"


def test_why_there_is_no_gpu():
    assert checks({**FACTS, "devices": [H200]})["a GPU"].status == "yes"
    assert "no NVIDIA driver" in checks(FACTS)["a GPU"].said
    assert checks(None, "gone")["a GPU"].status == "unknown"


def test_what_is_missing_names_what_mends_it(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda package: None)
    monkeypatch.setattr(doctor.shutil, "which", lambda program: None)
    found = checks(FACTS)
    assert found["audit view"].remedy.endswith("pip install tensorboard")
    assert found["--interactive-figures"].status == found["patches"].status == "no"
