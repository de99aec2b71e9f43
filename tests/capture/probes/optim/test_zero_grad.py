from auditor.capture.probes.optim.zero_grad import ZeroGradProbe
from tests.capture.drive import line_of, watched

HEAD = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
"""


def rows_of(tmp_path, source, steps=1):
    user, drive = watched(tmp_path, HEAD.lstrip("\n") + source, ZeroGradProbe, steps=steps)
    return user, drive.rows("optimizer")


def test_gradients_are_cleared_as_asked(tmp_path):
    user, _ = rows_of(
        tmp_path,
        "model.weight.grad = torch.ones(2, 2)\ndef step(): optimizer.zero_grad(set_to_none=False)\n",
    )
    assert user.model.weight.grad.sum() == 0
    user, _ = rows_of(
        tmp_path, "model.weight.grad = torch.ones(2, 2)\ndef step(): optimizer.zero_grad()\n"
    )
    assert user.model.weight.grad is None


def test_wrappers_count_once(tmp_path):
    source = """
class Wrapper(torch.optim.SGD):
    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none=set_to_none)  # super
        optimizer.zero_grad()                       # inner
wrapper = Wrapper(model.parameters(), lr=0.1)
class Model(torch.nn.Module):
    def zero_grad(self, set_to_none=True):
        optimizer.zero_grad(set_to_none)            # handed
other = Model()
def step():
    wrapper.zero_grad(False)
    other.zero_grad(False)
"""
    user, rows = rows_of(tmp_path, source)
    seen = {row["at_line"]: row["set_to_none"] for row in rows}
    assert seen == {
        line_of(user, "super"): False,
        line_of(user, "inner"): True,
        line_of(user, "handed"): False,
    }


def test_a_library_that_calls_it_is_via(tmp_path):
    source = """
import contextlib
def step():
    with contextlib.ExitStack() as stack:
        stack.callback(optimizer.zero_grad)
"""
    _, (row,) = rows_of(tmp_path, source)
    assert row["at_site"]["via"].endswith("/contextlib.py:_exit_wrapper")
