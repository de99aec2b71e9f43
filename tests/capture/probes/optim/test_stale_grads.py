"""The probe of gradients that nothing clears."""

from auditor.rules.opt.probes.gradients import StaleGradsProbe

from tests.capture.drive import watched

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


def test_of_two_optimizers_at_one_address_each_has_its_own_row(tmp_path):
    user, drive = watched(
        tmp_path,
        SOURCE.replace("    optimizer.step()", "    torch.optim.SGD([weight], lr=0.1).step()"),
        StaleGradsProbe,
        steps=4,
    )
    assert all(row["piled"] == 0 for row in drive.rows("uncleared"))
