"""The probe of thrown work on programs that are unlike a function."""

from __future__ import annotations

from pathlib import Path

from auditor.capture.probes.waste.thrown_work import ThrownWorkProbe
from tests.capture.drive import Drive, load

PROGRAM = """
import types
import torch

args = types.SimpleNamespace(lr=0.1)
weight = torch.ones(4, requires_grad=True)

def step():
    (weight * args.lr).sum().backward()
"""


def test_a_script_may_have_a_global_named_args(tmp_path: Path) -> None:
    """The target of a script is its module."""
    with Drive(tmp_path, ThrownWorkProbe) as drive:
        program = load(tmp_path, PROGRAM)
        (name,) = ThrownWorkProbe.passes
        with drive.running(name, program):
            for _ in range(3):
                drive.step(program.step)
    assert drive.warnings == []
    assert drive.rows("thrown")
