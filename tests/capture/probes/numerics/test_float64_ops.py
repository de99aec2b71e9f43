"""The probe of float64: what it counts, what it leaves out, and that nothing of it stays."""

import pytest
from auditor.rules.cfg.probes.float64_ops import Float64OpsProbe

from tests.capture.drive import line_of, watched

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.ones(4, 4))
optimizer = torch.optim.SGD([weight], lr=0.1)
wide = torch.ones(4, dtype=torch.float64)

def step():
    scaled = weight * wide  # meets
    (scaled @ scaled.T).relu().sum().backward()
    with torch.no_grad():
        weight.double().std()
    optimizer.step()

def broken():
    weight.double()
    raise ValueError("of the program's own")
"""


def test_what_follows_from_one_promotion(tmp_path):
    user, drive = watched(tmp_path, SOURCE, Float64OpsProbe, run="numbers", steps=2)
    birth, parameters = drive.rows("doubles")
    # the product by the weight, that of matrices, relu and sum on each of two steps
    assert (birth["how"], birth["n"], birth["products"], birth["steps"]) == ("mixed", 8, 2, 2)
    assert (birth["elements"], birth["largest"], birth["all"]) == (2 * 64, 16, 2 * 65)
    assert birth["at_line"] == line_of(user, "meets")
    assert birth["graph"]
    assert (
        parameters["all"] - parameters["elements"] >= 16
    )  # other tests may have left optimizers of theirs


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


def test_what_is_only_cast_is_narrowed_also_behind_a_copy(tmp_path):
    user, drive = watched(
        tmp_path, NARROWED, Float64OpsProbe, run="numbers", step="only_cast", steps=2
    )
    rows = [row for row in drive.rows("doubles") if row.get("how") == "narrowed"]
    first = line_of(user, "first")
    wanted = [(first, 2, 64, 2), (first + 1, 2, 48, 2)]
    assert [(row["at_line"], row["n"], row["elements"], row["steps"]) for row in rows] == wanted
