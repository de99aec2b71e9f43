"""Where the null device is installed and where it is not, by a stand-in for its package."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from auditor import null_device
from auditor.errors import AuditProblem, TargetProblem
from auditor.model.gpus import GPUS

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def installed(monkeypatch):
    """A package that is there, and can build nothing."""
    package = ModuleType("torch_null_device")

    class NullDeviceProblem(Exception):
        message, hint, detail = "no compiler", "install one", "cc: not found"

    def environment(gpu, devices, *, memory_bytes):
        raise NullDeviceProblem

    package.NullDeviceProblem = NullDeviceProblem
    package.lacking = NullDeviceProblem
    package.environment = environment
    package.without_null_device = lambda surroundings: {"kept": surroundings["kept"]}
    package.watching = SimpleNamespace(running=lambda: False)
    monkeypatch.setitem(sys.modules, "torch_null_device", package)
    return package


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_null_device", None)


def test_without_it_one_sentence_says_how_to_install_it(missing):
    lacking = null_device.lacking()
    assert lacking is not None and lacking.hint.startswith("pip install ./nulldevice")
    with pytest.raises(AuditProblem, match="is not installed"):
        null_device.environment("H100")
    assert null_device.without({"LD_PRELOAD": "x"}) == {"LD_PRELOAD": "x"}
    assert null_device.watching() is None


def test_a_device_that_nobody_can_ask_is_no_gpu(missing, monkeypatch):
    monkeypatch.setenv("NULLDEVICE_GPU", "name=x")
    with pytest.raises(TargetProblem, match="this process is on a null device"):
        null_device.watching()


def test_its_problems_are_ours(installed):
    lacking = null_device.lacking()
    assert lacking is not None and (lacking.message, lacking.hint) == ("no compiler", "install one")
    with pytest.raises(AuditProblem) as caught:
        null_device.environment("H100")
    assert caught.value.detail == "cc: not found"
    assert null_device.without({"kept": "1", "LD_PRELOAD": "x"}) == {"kept": "1"}


def test_it_is_watched_where_it_runs(installed):
    assert null_device.watching() is None
    installed.watching.running = lambda: True
    assert null_device.watching() is installed.watching


def test_both_play_the_same_models():
    code = (
        "from torch_null_device import GPUS; print([(g.key, g.name, g.memory_bytes, g.capability, "
        "g.processors, g.context_mib) for g in GPUS])"
    )
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "nulldevice")},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [
        (g.key, g.name, g.memory_bytes, g.capability, g.processors, g.context_mib) for g in GPUS
    ]
    assert said.stdout.strip() == str(ours)
