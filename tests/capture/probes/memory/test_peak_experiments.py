"""The probe of leaner steps: what it changes, only where nothing else changes by it."""

from pathlib import Path
from types import SimpleNamespace

from auditor.rules.mem.probes.peak_experiments import PeakExperimentsProbe

from auditor.runs.plan import LEANER_STEPS
from tests.capture.drive import Drive, line_of, load

SOURCE = """import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters())
seen = []

def step():
    seen.append((model.weight.grad is not None, optimizer.param_groups[0]["foreach"]))
    loss = model(torch.ones(2, 4)).sum()
    CLEAR
    loss.backward()
    optimizer.step()  # steps
"""


def changes(tmp_path: Path, clear: str):
    """What each step saw when it began, and the rows."""
    user = load(tmp_path, SOURCE.replace("CLEAR", clear))
    user.step()
    del user.seen[:]
    peaks = iter(range(100, 200))
    with Drive(tmp_path, PeakExperimentsProbe) as drive:
        resets: list[int] = []
        memory = SimpleNamespace(
            counters=lambda: {"peak_allocated": next(peaks)},
            reset_peak=lambda: resets.append(1),
            resize=lambda total: 0,
        )
        drive.context.shadow = SimpleNamespace(memory=memory)
        drive.run("leaner", user.step, steps=len(LEANER_STEPS))
        rows = drive.rows("leaner")
    assert len(resets) == len(LEANER_STEPS)
    assert user.optimizer.param_groups[0]["foreach"] is None
    return user, rows


def test_one_thing_is_changed_in_a_step_and_put_back(tmp_path):
    user, rows = changes(tmp_path, "optimizer.zero_grad()")
    assert user.seen == [(True, None), (False, None), (True, None), (True, False), (True, None)]
    wanted = [("", 0), ("gradients", 2), ("", 0), ("foreach", 2), ("largest", 0)]
    assert [(row["what"], row["changed"]) for row in rows] == wanted
    assert [row["peak_allocated"] for row in rows] == [100, 101, 102, 103, 104]
    assert rows[-2]["at_line"] == line_of(user, "steps")


def test_gradients_that_the_step_adds_to_are_left_alone(tmp_path):
    user, rows = changes(tmp_path, "pass")
    assert all(held for held, _ in user.seen)
    assert rows[1]["changed"] == 0


def test_a_step_that_breaks_off_leaves_the_optimizer_as_it_was(tmp_path):
    user = load(
        tmp_path, SOURCE.replace("CLEAR", "assert optimizer.param_groups[0]['foreach'] is None")
    )
    with Drive(tmp_path, PeakExperimentsProbe) as drive:
        try:
            drive.run("leaner", user.step, steps=len(LEANER_STEPS))
        except AssertionError:
            pass
        assert user.optimizer.param_groups[0]["foreach"] is None
