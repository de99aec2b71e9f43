"""The probe of schedulers: when it asks for further steps."""

import pytest
from auditor.rules.opt.probes.scheduler_steps import SOON, SchedulerStepsProbe

from tests.capture.drive import Drive, load

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)

def step():
    weight.sum().backward()
    optimizer.step()
    cosine.step()
"""


@pytest.mark.parametrize(
    ("steps", "more"), [(15 - SOON, False), (16 - SOON, True), (15, True), (16, False)]
)
def test_a_swing_that_ends_soon_is_waited_for(tmp_path, steps, more):
    with Drive(tmp_path, SchedulerStepsProbe) as drive:
        user = load(tmp_path, SOURCE)
        with drive.running("loud"):
            for _ in range(steps):
                drive.step(user.step)
            assert drive.probes[0].wants_more() is more
