"""The probe of torch.save: times, what was written over, and everything put back."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.ckpt.torch_save import TorchSaveProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import functools, io, torch
from torch import save

def step():
    torch.save({"w": torch.ones(64)}, "FOLDER/a.pt")          # dotted
    functools.partial(save, f=io.BytesIO())({"w": 1})         # buffer

def broken():
    torch.save({"w": 1}, "FOLDER/missing/a.pt")
"""


def user_of(folder: Path) -> object:
    return load(folder, SOURCE.replace("FOLDER", str(folder)))


def test_each_save_is_told_with_its_line(tmp_path: Path) -> None:
    user = user_of(tmp_path)
    with Drive(tmp_path, TorchSaveProbe) as drive:
        drive.run("quiet", user.step, steps=2)
        rows = drive.rows("saves")
    assert [(row["step"], row["at_line"]) for row in rows] == [
        (step, line_of(user, mark)) for step in (0, 1) for mark in ("dotted", "buffer")
    ]
    assert [(row["path"] is not None, row["replaced"]) for row in rows] == [
        (True, False),
        (False, False),
        (True, True),
        (False, False),
    ]
    assert rows[0]["path"] == str(tmp_path / "a.pt")
    assert rows[0]["bytes"] == (tmp_path / "a.pt").stat().st_size
    assert rows[1]["bytes"] is None
    assert all(row["us"] > 0 for row in rows)
    assert torch.equal(torch.load(tmp_path / "a.pt")["w"], torch.ones(64))


NESTED = """
import io, torch

def write():
    torch.save({"w": 1}, io.BytesIO())        # saves

def step():
    write()                                   # calls
"""


def test_the_calls_around_a_save_are_told(tmp_path: Path) -> None:
    user = load(tmp_path, NESTED)
    with Drive(tmp_path, TorchSaveProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        (row,) = drive.rows("saves")
        lines = [site["line"] for site in drive.rows("sites")]
    told = [lines[number] for number in row["stack"]]
    assert told[-2:] == [line_of(user, "calls"), line_of(user, "saves")]


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(tmp_path: Path, fails: bool) -> None:
    user = user_of(tmp_path)
    before = torch.save.__code__, torch.save.__defaults__, torch.save.__kwdefaults__
    with Drive(tmp_path, TorchSaveProbe) as drive:
        if fails:
            with pytest.raises(RuntimeError, match="missing"):
                drive.run("quiet", user.broken)
            assert drive.rows("saves") == []
        else:
            drive.run("quiet", user.step)
    assert (torch.save.__code__, torch.save.__defaults__, torch.save.__kwdefaults__) == before


COMPILED = """
import io, torch

net = torch.nn.Linear(4, 4)
compiled = torch.compile(net, backend="eager")
whole = {"epoch": 1, "parts": [1], "state": {"model": compiled.state_dict()}}
deep = {"a": {"b": {"c": compiled.state_dict()}}}

def save(what):
    torch.save(what, io.BytesIO())

def step():
    compiled(torch.ones(2, 4))
    torch.save(whole, io.BytesIO())
    torch.save(deep, io.BytesIO())
    torch.save(net.state_dict(), io.BytesIO())
    torch.save([1], io.BytesIO())
"""


def test_a_name_of_a_compiled_module_is_told_once_a_line(tmp_path: Path) -> None:
    user = load(tmp_path, COMPILED)
    COMPILED_CODE.install()
    try:
        with Drive(tmp_path, TorchSaveProbe) as drive:
            drive.run("quiet", user.step, steps=2)
            rows = drive.rows("saves")
    finally:
        COMPILED_CODE.uninstall()
    assert [row.get("compiled", "") for row in rows] == ["_orig_mod.weight", *[""] * 7]


def test_where_nothing_is_known_to_compile_no_name_is_looked_at(tmp_path: Path) -> None:
    user = load(tmp_path, COMPILED)
    with Drive(tmp_path, TorchSaveProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        assert all("compiled" not in row for row in drive.rows("saves"))


def test_what_a_mapping_raises_does_not_reach_the_program(tmp_path: Path) -> None:
    source = (
        COMPILED
        + """
class Odd(dict):
    def items(self):
        raise ValueError("no items")

    def __reduce__(self):
        return dict, ()

def odd():
    compiled(torch.ones(2, 4))
    torch.save(Odd(a=1), io.BytesIO())
"""
    )
    user = load(tmp_path, source)
    COMPILED_CODE.install()
    try:
        with Drive(tmp_path, TorchSaveProbe) as drive:
            drive.run("quiet", user.odd, steps=1)
            (row,) = drive.rows("saves")
            (lapse,) = drive.rows("lapses")
    finally:
        COMPILED_CODE.uninstall()
    assert "compiled" not in row
    assert lapse["probe"] == "saves"
