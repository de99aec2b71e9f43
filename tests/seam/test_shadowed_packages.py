"""Modules of the user's with the name of a package that audit imports in the same process."""

import sys

import psutil
import pytest

from auditor.runs.target import OURS, hidden

TRAINER = """\
import torch
{first}
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(12):
    loss = model(torch.ones(2)).sum() * {scale}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def run(audit, folder, script):
    """From elsewhere: what is in the current folder is what ``python -c`` of the fixture imports."""
    (folder / "here").mkdir()
    given = ("--steps", "3", "--device", "cpu", "--out", "out")
    return audit("run", f"../{script}", *given, cwd=folder / "here")


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("auditor", "from auditor import scale"),
        ("msgspec", "import msgspec; scale = msgspec.scale"),
    ],
)
def test_a_module_that_the_program_does_not_get_is_named(tmp_path, audit, name, first):
    (tmp_path / f"{name}.py").write_text("scale = 2\n")
    (tmp_path / "train.py").write_text(TRAINER.format(first=first, scale="scale"))
    done = run(audit, tmp_path, "train.py")
    assert done.returncode == 2
    assert f"{tmp_path / name}.py has the name of a package" in done.stderr


def test_one_that_nobody_imports_is_no_obstacle(tmp_path, audit):
    """Ours are imported before the program's folder is importable."""
    for name in OURS:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the program does not import this')")
    (tmp_path / "auditor.py").write_text(TRAINER.format(first="", scale=1))
    assert run(audit, tmp_path, "auditor.py").returncode == 0


def test_a_name_that_a_package_really_lacks_is_the_programs_own_error(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError) as lacking:
        psutil.no_such_name  # noqa: B018
    assert hidden(lacking.value) is None
    (tmp_path / "psutil.py").write_text("")
    problem = hidden(lacking.value)
    assert problem is not None and "psutil.py" in problem.message
    assert hidden(ImportError("x", name="torch")) is None
    assert hidden(AttributeError("x", name="y", obj=sys)) is None
