"""The probe of the lines around a backward: innermost first, each stack once."""

from auditor.rules.mem.probes.peak_experiments import BackwardCallersProbe

from tests.capture.drive import Drive, line_of, load

SOURCE = """import torch
w = torch.ones(1, requires_grad=True)

def learn():
    w.sum().backward()  # innermost

def step():
    for _ in range(2):
        learn()  # first
    learn()  # second
"""


def test_each_stack_once_innermost_first(tmp_path):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, BackwardCallersProbe) as drive:
        drive.run("loud", user.step, steps=3)
        rows = drive.rows("enclosing")
        lines = {row["id"]: row["line"] for row in drive.rows("sites")}
    stacks = [[lines[number] for number in row["lines"]] for row in rows]
    inner = line_of(user, "innermost")
    assert stacks == [[inner, line_of(user, "first")], [inner, line_of(user, "second")]]
