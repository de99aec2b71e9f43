"""The probe of gradient norms: what is divided out, and what is left out."""

import pytest
from auditor.rules.num.probes.grad_norms import GradNormsProbe

from tests.capture.drive import watched

SOURCE = """import torch
weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.{dtype}))
optimizer = torch.optim.{optimizer}([weight], lr=1e-9{more})
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled={scaled})
count = [0]

def step():
    count[0] += 1
    optimizer.zero_grad()
    scaler.scale((weight * {gradient}).sum()).backward()
    {clip}
    scaler.step(optimizer)  # steps
    scaler.update()
"""

PLAIN = {"dtype": "float32", "optimizer": "SGD", "more": "", "scaled": False, "gradient": "3.0"}
PLAIN |= {"clip": "pass"}


def rows_of(folder, pass_name="loud", steps=4, **changed):
    user, drive = watched(
        folder, SOURCE.format(**{**PLAIN, **changed}), GradNormsProbe, run=pass_name, steps=steps
    )
    return user, drive.rows("norms")


@pytest.mark.parametrize(
    "optimizer", [{}, {"optimizer": "Adam", "more": ", fused=True"}], ids=["plain", "fused"]
)
def test_steps_that_the_scaler_skips_have_no_row(tmp_path, optimizer):
    _, rows = rows_of(
        tmp_path, scaled=True, gradient="(float('inf') if count[0] == 2 else 3.0)", **optimizer
    )
    assert [row["step"] for row in rows] == [0, 2, 3]
