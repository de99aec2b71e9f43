"""Programs that put functions of their own in place of Python's, which our code calls, too."""

import pytest

TRAINER = """\
import {module}
import torch
def refused(*given, **named):
    raise RuntimeError("not with me")
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
{module}.{name} = refused
for step in range(12):
    loss = model(torch.ones(2)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run(audit, folder, module, name):
    (folder / "train.py").write_text(TRAINER.format(module=module, name=name))
    return audit("run", "train.py", "--steps", "3", "--device", "cpu", "--out", "out", cwd=folder)


@pytest.mark.parametrize(("module", "name"), [("os", "replace"), ("os", "write")])
def test_the_recording_is_written_with_the_originals(tmp_path, audit, module, name):
    done = run(audit, tmp_path, module, name)
    assert done.returncode == 0, done.stderr
    assert "3 steps" in done.stdout


@pytest.mark.parametrize(("module", "name"), [("io", "open"), ("os", "stat")])
def test_a_replaced_function_is_named_and_neither_side_is_blamed(tmp_path, audit, module, name):
    done = run(audit, tmp_path, module, name)
    assert done.returncode == 2, done.stdout
    assert "refused in " in done.stderr and "train.py, line 4, raised RuntimeError" in done.stderr
    assert "Traceback" not in done.stderr and "bug of the auditor" not in done.stderr
