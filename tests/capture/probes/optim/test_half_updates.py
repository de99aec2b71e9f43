"""The probe of updates in half precision: what it counts, and that nothing of it stays."""

from auditor.rules.num.probes.averages import HalfUpdatesProbe

from tests.capture.drive import line_of, watched

SOURCE = """
import torch
weight = torch.nn.Parameter(torch.tensor([1.0, 0.001, 4.0], dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], lr=RATE)

def step():
    weight.grad = torch.tensor([1.0, 1.0, 0.0], dtype=torch.bfloat16)
    optimizer.step()  # here
"""


def rows_of(folder, source, steps=1):
    user, drive = watched(folder, source, HalfUpdatesProbe, steps=steps)
    return user, drive.rows("updates")


def test_what_was_asked_for_and_what_was_lost(tmp_path):
    # Beside 1 the next smaller number of bfloat16 is 0.0039 away, so 0.001 is lost; beside 0.001 it
    # is not; 0 asks for nothing.
    user, (row,) = rows_of(tmp_path, SOURCE.replace("RATE", "0.001"))
    assert (row["asked"], row["kept"], row["steps"]) == (2, 1, 1)
    assert (row["optimizer"], row["dtype"], row["rate"]) == ("SGD", "bfloat16", 0.001)
    assert row["at_line"] == line_of(user, "here")
