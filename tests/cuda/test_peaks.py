"""Peaks that others measured on real GPUs (benchmarks/peaks): the null device has the same."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from auditor import null_device

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "benchmarks" / "peaks"


def published():
    spec = importlib.util.spec_from_file_location("peaks_published", FOLDER / "published.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.PUBLISHED


CASES = (
    # torch's allocator and cuBLAS workspaces by the byte: 1294.25 MiB are 1278 of tensors and two
    # workspaces of 8.125.
    (("layers.py", "swiglu", "1024"), (), 0.0),
    (("layers.py", "small-swiglu", "4096"), (), 0.0),
    (("layers.py", "head-and-loss", "4096"), (), 1e-6),
    (("course_gpt.py", "--tokens", "128"), (), 0.002),
    (("book_gpt.py", "--change", "0"), ("--steps", "2"), 1e-4),
    (("char_gpt.py",), (), 0.001),
    (("reference_gpt2.py",), (), 0.001),
    (("small_vlm.py", "--batch", "1"), (), 1e-4),
    (("mistral.py", "--batch", "2", "--ranks", "2"), (), 1e-4),
)


@pytest.mark.parametrize(("program", "more", "tolerance"), CASES, ids=lambda value: str(value))
def test_the_peak_is_that_of_the_real_gpu(program, more, tolerance):
    rows = [row for row in published() if row.program == program]
    assert rows
    command = [sys.executable, str(FOLDER / program[0]), *program[1:], *more]
    surroundings = {
        **os.environ,
        **null_device.environment(rows[0].gpu),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=surroundings, check=False
    )
    assert "{" in done.stdout, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for row in rows:
        assert found[row.measured] == pytest.approx(row.bytes, rel=tolerance), row.what
