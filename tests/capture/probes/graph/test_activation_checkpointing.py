"""The probe of activation checkpoints: which calls leave the variant open, the same gradients,
everything put back.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch
from auditor.rules.ckpt.probes.activation_checkpointing import NAMES, ActivationCheckpointingProbe
from torch.utils import checkpoint as torch_checkpoint

from tests.capture.drive import Drive, line_of, load

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

SOURCE = """
import torch
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
FAILS = False

def fails(x):
    raise KeyError

def step():
    model.zero_grad()
    hidden = checkpoint(model[0], torch.ones(2, 4))              # lost
    hidden = checkpoint(model[1].forward, hidden.requires_grad_())  # kept
    checkpoint(model[2], hidden, use_reentrant=False).mean().backward()
    if FAILS:
        checkpoint(fails, hidden)
"""


def swapped() -> list[object]:
    return [inspect.unwrap(getattr(torch_checkpoint, name)).__code__ for name in NAMES]


def test_calls_that_leave_the_variant_open(tmp_path: Path) -> None:
    alone = load(tmp_path, SOURCE)
    alone.step()
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, ActivationCheckpointingProbe) as drive:
        drive.run("loud", user.step, steps=2)
        rows = drive.rows("recompute")
    seen = [(row["step"], row["at_line"], row["name"], row["lost"], row["n"]) for row in rows]
    lost, kept = line_of(user, "lost"), line_of(user, "kept")
    assert seen == [
        (s, line, "checkpoint", gone, 1)
        for s in (0, 1)
        for line, gone in ((lost, True), (kept, False))
    ]
    assert all(row["library"] == "" for row in rows)
    assert torch.equal(user.model[1].weight.grad, alone.model[1].weight.grad)


def test_the_variant_may_be_chosen_without_its_name(tmp_path: Path) -> None:
    user = load(
        tmp_path,
        """
        import torch
        from torch.utils.checkpoint import checkpoint_sequential
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))

        def step():
            x = torch.ones(2, 4, requires_grad=True)
            checkpoint_sequential(model, 2, x, False).sum().backward()
            checkpoint_sequential(model, 2, x).sum().backward()  # open
        """,
    )
    with Drive(tmp_path, ActivationCheckpointingProbe) as drive:
        drive.run("loud", user.step, steps=1)
        assert [row["at_line"] for row in drive.rows("recompute")] == [line_of(user, "open")]


def test_everything_is_put_back_also_after_an_error(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    user.FAILS = True
    before = swapped()
    with pytest.raises(KeyError), Drive(tmp_path, ActivationCheckpointingProbe) as drive:
        drive.run("loud", user.step)
    assert swapped() == before
