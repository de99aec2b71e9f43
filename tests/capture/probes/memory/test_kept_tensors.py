"""The probe of variables that hold more and more tensors."""

from __future__ import annotations

from pathlib import Path

from auditor.capture.probes.memory.kept_tensors import KeptTensorsProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """import collections
import torch

class Monitor:
    def __init__(self):
        self.history = collections.defaultdict(list)

    def update(self, out):
        self.history["out"].append(out.detach())  # kept

model = torch.nn.Linear(8, 4)
monitor, graphs, full, numbers = Monitor(), [], collections.deque(maxlen=1), []
full.append(torch.ones(2))

def step():
    out = model(torch.ones(16, 8))
    monitor.update(out)
    graphs.append(out)
    full.append(torch.ones(2))
    numbers.append(1.0)
"""


def test_a_row_for_what_has_grown_and_no_other(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, KeptTensorsProbe) as drive:
        drive.run("loud", user.step, steps=4)
        (row,) = drive.rows("kept")
    assert row["name"] == "self" and row["path"] == ".history[*][*]"
    assert row["line"] == line_of(user, "kept")
    assert row["tensors"] == [1, 2, 3, 4]
    assert row["nbytes"] == [each * 16 * 4 * 4 for each in (1, 2, 3, 4)]
    assert row["devices"] == ["cpu"]


def test_one_step_shows_no_growth(tmp_path: Path) -> None:
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, KeptTensorsProbe) as drive:
        drive.run("loud", user.step, steps=1)
        assert drive.rows("kept") == []
