"""The probe of layers: what is computed again, over which batches units are looked at."""

from pathlib import Path

import pytest
import torch
from auditor.rules.train.layers import LayerCannotLearn
from auditor.rules.train.probes.layers import LayersProbe
from auditor.rules.train.probes.loss_repairs import LossRepairsProbe
from auditor.rules.train.rows import LayerRow

from auditor.model import Site
from tests.capture.drive import Drive, line_of, load, watched
from tests.capture.probes.train.test_loss_repairs import ACCUMULATED, state_of
from tests.rules.asking import ask, rows
from tests.rules.test_rules import factories
from tests.rules.train007 import silent

IMAGES = """
import torch
from torch.nn import functional as F

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)
)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
batches = []

def step():
    x, y = 255 * torch.rand(16, 6), torch.randint(0, 3, (16,))
    batches.append((x, y))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()  # step
    optimizer.step()
"""
DROPPED = IMAGES.replace("torch.nn.Tanh()", "torch.nn.Dropout(0.5)")
INPLACE = IMAGES.replace("ReLU()", "ReLU(inplace=True)")
TWICE = IMAGES.replace(
    "    F.cross_entropy(model(x), y).backward()",
    "    F.cross_entropy(model(x), y).backward(retain_graph=True)\n"
    "    F.cross_entropy(model(x), y).backward()",
)


def run(folder, source, *classes, loud=2, steps=2):
    user = load(folder, source)
    with Drive(folder, *(classes or (LayersProbe,))) as drive:
        if loud:
            drive.run("loud", user.step, loud)
        drive.run("gradients", user.step, steps)
        return user, drive.rows("layers"), drive.rows("lapses")


@pytest.mark.parametrize("source", [IMAGES, DROPPED, INPLACE, TWICE])
def test_training_is_the_same_to_the_bit(tmp_path, source):
    plain = load(tmp_path, source)
    for _ in range(4):
        plain.step()
    wanted = state_of(plain)
    user, found, lapses = run(tmp_path, source)
    assert {row["kind"] for row in found} >= {"input", "dead"}
    assert lapses == []
    for one, two in zip(wanted, state_of(user), strict=True):
        assert torch.equal(one, two)


def _gradients(model, x):
    out = model(x).flatten()
    mixed = out @ torch.arange(len(out)).cos()
    found = torch.autograd.grad(mixed, list(model.parameters()))
    return torch.cat([each.flatten() for each in found]).double()


def test_the_ratio_is_that_of_gradients_computed_by_hand(tmp_path):
    plain = load(tmp_path, IMAGES)
    plain.step()
    plain = load(tmp_path, IMAGES)
    x = 255 * torch.rand(16, 6)
    raw = _gradients(plain.model, x)
    normal = _gradients(plain.model, (x - x.mean(0)) / x.std(0, correction=0))
    user, found, _ = run(tmp_path, IMAGES, loud=0)
    (first,) = (row for row in found if row["kind"] == "input")
    assert torch.equal(user.batches[0][0], x)
    assert first["ratio"] == pytest.approx(float(raw.norm() / normal.norm()), rel=1e-4)
    assert first["given"] == pytest.approx(float(x.square().mean().sqrt()), rel=1e-4)
    assert (first["layer"], first["at_line"]) == ("0.weight", line_of(user, "step"))


def test_gradients_of_ours_are_not_the_programs(tmp_path):
    """Both compute gradients when a backward begins: neither's are the program's."""
    source = ACCUMULATED.replace("torch.nn.Embedding(9, 8)", "Scaled()").replace(
        "torch.manual_seed(0)",
        "class Scaled(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = torch.nn.Linear(1, 8)\n"
        "    def forward(self, x):\n"
        "        return self.inner(500.0 * x[..., None])\n"
        "torch.manual_seed(0)",
    )
    source = source.replace("torch.nn.Dropout(0.1), ", "")
    user, drive = watched(tmp_path, source, LossRepairsProbe, LayersProbe, run="gradients", steps=2)
    assert [row["tokens"] for row in drive.rows("token_weights")] == [[24, 2, 10]] * 2
    assert [row["ratio"] for row in drive.rows("layers")][0] > 10
    assert drive.rows("lapses") == []


@pytest.mark.parametrize(
    ("noise", "computed"), [("torch.ones_like", True), ("torch.poisson", False)]
)
def test_a_step_that_gives_another_loss_the_second_time_has_no_ratio(tmp_path, noise, computed):
    noisy = IMAGES.replace(
        "    F.cross_entropy(model(x), y)",
        f"    out = model(x)\n    F.cross_entropy(out * {noise}(out**2 + 5), y)",
    )
    _, found, _ = run(tmp_path, noisy, loud=0)
    (row,) = (row for row in found if row["kind"] == "input")
    assert (row["ratio"] is not None) == computed


@pytest.mark.parametrize("name", factories(Path(silent.__file__)))
def test_near_misses_have_no_note_either(tmp_path, name):
    step = getattr(silent, name)()
    with Drive(tmp_path, LayersProbe) as drive:
        drive.run("loud", step, 9)
        drive.run("gradients", step, 2)
        found = drive.rows("layers")
        assert drive.rows("lapses") == []
    layers = [
        LayerRow(**{each: row[each] for each in LayerRow.__struct_fields__ if each in row})
        for row in found
    ]
    places = (Site("t.py", 1),) * 99
    assert layers == [] or not list(ask(LayerCannotLearn(), rows(*layers, sites=places)))
