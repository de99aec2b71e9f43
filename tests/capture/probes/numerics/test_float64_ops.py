"""The probe of float64: what it counts, what it leaves out, and that nothing of it stays."""

import pytest
from auditor.rules.cfg.probes.float64_ops import Float64OpsProbe

from tests.capture.drive import watched

NARROWED = """
import torch
net = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
wide = torch.ones(8, 4, dtype=torch.float64)

def only_cast():
    net(wide.clone().float()).sum().backward()      # first
    net(wide[2:].to(torch.float32)).sum().backward()

def used_as_well():
    net((wide - wide.mean()).float()).sum().backward()

def cast_and_used():
    net(wide.float()).sum().backward()
    float(wide.clone().std())

def computed_here():
    net(net.weight.double().detach().square().float()).sum().backward()

def one_number():
    (net(torch.ones(8, 4)) * torch.tensor(2.0, dtype=torch.float64).float()).sum().backward()
"""


@pytest.mark.parametrize("name", ["used_as_well", "cast_and_used", "computed_here", "one_number"])
def test_what_is_used_in_float64_is_not_only_narrowed(tmp_path, name):
    user, drive = watched(tmp_path, NARROWED, Float64OpsProbe, run="numbers", step=name, steps=2)
    assert "narrowed" not in {row.get("how") for row in drive.rows("doubles")}
