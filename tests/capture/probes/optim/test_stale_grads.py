"""The probe of gradients that nothing clears: what it counts, and that it keeps no gradient
alive.
"""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
from auditor.rules.opt.probes.stale_grads import StaleGradsProbe

from tests.capture.drive import Drive, line_of, load

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
CLEAR = False

def step():
    if CLEAR:
        optimizer.zero_grad()
    (weight * 2).sum().backward()  # adds
    optimizer.step()  # steps
"""


@pytest.mark.parametrize(("clear", "piled"), [(False, 3), (True, 0)])
def test_steps_are_counted_from_the_second(tmp_path: Path, clear: bool, piled: int) -> None:
    user = load(tmp_path, SOURCE)
    user.CLEAR = clear
    with Drive(tmp_path, StaleGradsProbe) as drive:
        drive.run("loud", user.step, 4)
        (row,) = drive.rows("uncleared")
    assert (row["optimizer"], row["steps"], row["piled"]) == ("SGD", 4, piled)
    assert row["at_line"] == line_of(user, "steps")
    assert (row["backward_at"] is None) == clear


def test_a_dropped_gradient_is_gone(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, StaleGradsProbe) as drive, drive.running("loud", user.step):
        drive.step(user.step)
        gradient = weakref.ref(user.weight.grad)
        user.weight.grad = None
        assert gradient() is None


def test_of_two_optimizers_at_one_address_each_has_its_own_row(tmp_path: Path) -> None:
    user = load(
        tmp_path,
        SOURCE.replace("    optimizer.step()", "    torch.optim.SGD([weight], lr=0.1).step()"),
    )
    with Drive(tmp_path, StaleGradsProbe) as drive:
        drive.run("loud", user.step, 4)
        assert all(row["piled"] == 0 for row in drive.rows("uncleared"))
