"""What probes of optimizers have in common: nothing of the user's is kept, and nothing is done while a graph is recorded."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from torch.optim import optimizer as torch_optimizer

from auditor.capture import optimizers
from auditor.capture.fed import FedProbe
from auditor.capture.finite import FiniteProbe
from auditor.capture.norms import NormsProbe
from auditor.capture.optimizers import OptimizerProbe
from auditor.capture.probe import Probe
from auditor.capture.updates import UpdatesProbe
from tests.capture.drive import Drive, load

SOURCE = """import torch, weakref
made = []

def step():
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    inner = torch.optim.SGD([weight], lr=0.1)
    made.append(weakref.ref(inner))
    (weight * 2).sum().backward()
    inner.step()
"""


@pytest.mark.parametrize(
    ("probe", "pass_name"), [(FiniteProbe, "quiet"), (NormsProbe, "loud"), (FedProbe, "loud"), (UpdatesProbe, "loud")]
)
def test_an_optimizer_that_the_step_made_dies_with_it(tmp_path: Path, probe: type[Probe], pass_name: str) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, probe) as drive:
        drive.context.device = "cuda"
        with drive.running(pass_name, user.step):
            drive.step(user.step)
            drive.step(user.step)
            gc.collect()
            assert [reference() for reference in user.made] == [None, None]
        drive.context.device = "cpu"


def test_while_a_graph_is_recorded_nobody_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, NormsProbe) as drive:
        monkeypatch.setattr(optimizers, "capturing", lambda: True)
        drive.run("loud", user.step, steps=1)
        assert drive.rows("norms") == []
        monkeypatch.undo()
        drive.run("loud", user.step, steps=1)
        assert len(drive.rows("norms")) == 1


def test_only_what_a_probe_looks_at_is_hooked(tmp_path: Path) -> None:
    class After(OptimizerProbe):
        def after_optimizer(self, optimizer: object) -> None:
            pass

    hooks = torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks
    before = [len(each) for each in hooks]
    with Drive(tmp_path, After):
        assert [len(each) for each in hooks] == [before[0], before[1] + 1]
    assert [len(each) for each in hooks] == before
