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

LONGEST = (
    "verify/test_verify_command.py",
    "seam/test_rehearsals.py",
    "rules/test_rules.py",
    "seam/test_outcomes.py",
    "test_examples.py",
    "seam/test_scripts.py",
    "drill/test_drill_command.py",
    "seam/test_replay.py",
    "seam/test_processes.py",
    "seam/test_fixes.py",
)
"""Files that take longest, first: whoever gets one of them last would keep the other worker waiting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first, the others in their order."""
    places = {str(ROOT / "tests" / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


@pytest.fixture(scope="session")
def audit():
    """Runs the command line as a user would: ``audit("run", "trainer:step", cwd=folder)``."""

    def call(*words: str, cwd: Path, timeout: float = 180, **env: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from auditor.cli import main; main()", *words]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120", **env}
        return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=surroundings, check=False)

    return call
