"""What the probe writes of calls of ``torch.compile``, and of what ran."""

import textwrap

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.compile.compiles import RegionsProbe
from tests.capture.drive import Drive, load
from tests.capture.test_compiled import fresh

HEAD = """
import torch

net = torch.nn.Linear(4, 4)
x = torch.ones(2, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
taken = 0

def train(forward):
    global taken
    taken += 1
    forward(x).sum().backward()
    optimizer.step()
"""


def recorded(tmp_path, text, passes=(("quiet", 3),)):
    tmp_path.mkdir(exist_ok=True)
    fresh()
    before = torch.compile
    COMPILED_CODE.install()
    try:
        with Drive(tmp_path, RegionsProbe) as drive:
            program = load(tmp_path, HEAD + textwrap.dedent(text))
            for name, steps in passes:
                drive.run(name, program.step, steps)
    finally:
        COMPILED_CODE.uninstall()
    assert torch.compile is before
    assert drive.warnings == []
    return program, drive


def runs(drive, name="quiet"):
    return [
        (row["number"], row.get("steps", 0), row.get("trained", False), row.get("dropped", False))
        for row in drive.rows("region_runs")
        if row["pass"] == name
    ]


def test_what_ran_is_not_known_where_the_compiler_is_switched_off(tmp_path):
    text = """
    compiled = torch.compile(net, backend="eager")

    def step():
        train(compiled)
    """
    _, drive = recorded(tmp_path, text)
    assert runs(drive) == [(0, 3, True, False)]
    with torch._dynamo.config.patch(disable=True):
        _, drive = recorded(tmp_path / "off", text)
    assert runs(drive) == []
