"""tests/cuda needs a CUDA build of torch; most of it runs inside a process on the null device, as
`make test-cuda` starts it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.errors import AuditProblem
from auditor.extensions import nulldevice
from auditor.extensions.nulldevice.found import cuda_build
from auditor.nulldevice import watching

ROOT = Path(__file__).resolve().parent.parent.parent


def lacking() -> str | None:
    """Why nothing in this folder can run here, if so."""
    try:
        cuda_build()
    except AuditProblem as problem:
        return problem.message
    return None


WHY_NOT = lacking()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All are skipped where torch has no CUDA in it."""
    if WHY_NOT is not None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(
                    pytest.mark.skip(reason=f"tests/cuda: {WHY_NOT} (make test-cuda sets one up)")
                )


@pytest.fixture
def inside() -> None:
    """For tests whose own process must be on the null device."""
    if not watching.running():
        pytest.skip(
            "this process is not on the null device: python -m auditor.nulldevice -- python -m "
            "pytest tests/cuda"
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
        found = nulldevice.environment(
            gpu, devices, memory_bytes=memory_bytes, unanswered=tmp_path / "unanswered"
        )
        surroundings = {
            **os.environ,
            **found,
            "PYTHONPATH": str(ROOT),
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
