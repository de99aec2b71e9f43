"""The probe of torch.save: names of a compiled module."""

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.ckpt.load_state_dict import TorchSaveProbe
from tests.capture.drive import Drive, load

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


def test_what_a_mapping_raises_does_not_reach_the_program(tmp_path):
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
