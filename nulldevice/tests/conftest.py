"""Most of these tests need a CUDA build of torch, and run inside a process on the null device:
``python -m torch_null_device -- pytest nulldevice/tests``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

try:  # as it is installed
    import torch_null_device
except ImportError:  # else as it lies here
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import torch_null_device
from torch_null_device import NullDeviceProblem, watching
from torch_null_device.found import cuda_build

SOURCES = Path(torch_null_device.__file__).parents[1]
WITHOUT_CUDA = {"test_null_answers.py", "test_wheel.py"}


def lacking() -> str | None:
    """Why little in this folder can run here, if so."""
    try:
        cuda_build()
    except NullDeviceProblem as problem:
        return problem.message
    return None


WHY_NOT = lacking()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs CUDA code is skipped where torch has none in it."""
    for item in items:
        if WHY_NOT is not None and item.path.name not in WITHOUT_CUDA:
            item.add_marker(pytest.mark.skip(reason=f"{WHY_NOT} (make test-cuda sets one up)"))


@pytest.fixture
def inside() -> None:
    """For tests whose own process must be on the null device."""
    if not watching.running():
        pytest.skip(
            "this process is not on the null device: python -m torch_null_device -- pytest "
            "nulldevice/tests"
        )


AT_ONCE = """
import os, sys
sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""
"""Ends a program without the interpreter's own end. Autograd's thread of a device lets go of the last
graph's Python objects (FSDP2's callbacks, ``autograd.Function``, tensors) after ``backward`` returned, and
needs the GIL for it; where the interpreter ends first, the thread is unwound and torch aborts
("terminate called without an active exception"), on a GPU as here."""

Child = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """Runs a text as a program on a null device of its own: ``child("import torch ...", gpu="T4",
    devices=2, ENV="x")``.
    """

    def run(
        program: str,
        *,
        gpu: str = "H100",
        devices: int = 1,
        memory_bytes: int | None = None,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        found = torch_null_device.environment(
            gpu, devices, memory_bytes=memory_bytes, unanswered=tmp_path / "unanswered"
        )
        surroundings = {
            **os.environ,
            **found,
            "PYTHONPATH": str(SOURCES),
            "OMP_NUM_THREADS": "1",
            **env,
        }
        command = [sys.executable, "-X", "faulthandler", "-c", program + AT_ONCE]
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
            env=surroundings,
            check=False,
        )

    return run
