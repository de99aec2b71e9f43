"""The probe of what optimizers are fed: rows at the end of the pass, torch's hooks put back."""

from __future__ import annotations

from pathlib import Path

from torch.optim import optimizer as torch_optimizer

from auditor.capture.probes.graph.params_without_grad import ParamsWithoutGradProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """import torch
used, cut = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW([{"params": used.parameters()}, {"params": cut.parameters(), "lr": 0.0}])

def step():
    optimizer.zero_grad()
    used(cut(torch.ones(1, 2)).detach()).sum().backward()
    optimizer.step()  # steps
"""


def test_one_row_for_each_optimizer(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, ParamsWithoutGradProbe) as drive:
        drive.run("loud", user.step, steps=3)
        (row,) = drive.rows("fed")
    assert (row["optimizer"], row["steps"], row["parameters"], row["n"]) == ("AdamW", 3, 4, 2)
    assert [each["shape"] for each in row["unfed"]] == [[2, 2], [2]]
    assert row["still"] == [{"group": 1, "parameters": 2}]
    assert row["at_line"] == line_of(user, "steps")


def test_hooks_are_taken_away_and_a_broken_group_does_no_harm(tmp_path: Path) -> None:
    before = [
        len(hooks)
        for hooks in (
            torch_optimizer._global_optimizer_pre_hooks,
            torch_optimizer._global_optimizer_post_hooks,
        )
    ]
    user = load(tmp_path, SOURCE)
    user.optimizer.param_groups[1]["lr"] = "a word"
    user.optimizer.param_groups[1]["params"] = []
    with Drive(tmp_path, ParamsWithoutGradProbe) as drive:
        drive.run("loud", user.step)
    after = [
        len(hooks)
        for hooks in (
            torch_optimizer._global_optimizer_pre_hooks,
            torch_optimizer._global_optimizer_post_hooks,
        )
    ]
    assert after == before
