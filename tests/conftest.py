"""Fixtures that several rooms share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent

# How long an example takes says something about the machine that the tests share with others, not about the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


@pytest.fixture(scope="session")
def audit():
    """Runs the command line as a user would: ``audit("run", "trainer:step", cwd=folder)``."""

    def call(*words: str, cwd: Path, timeout: float = 180, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from auditor.cli import main; main()", *words]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120", **env}
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=surroundings, check=False)

    return call
