"""What the probe writes of calls of ``torch.compile``, and of what ran."""

import textwrap

import pytest
import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.compile import compiles
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


COMPILED = 'compiled = torch.compile(net, backend="eager")'
IN_PLACE = 'net.compile(backend="eager")'
FUNCTION = 'f = torch.compile(lambda x: net(x).cos(), backend="eager")'


@pytest.mark.parametrize(
    ("made", "step", "expected"),
    [
        (COMPILED, "train(compiled)", (0, 3, True, False)),
        (COMPILED, "train(net)", (0, 0, True, False)),
        (COMPILED, "net(x).sum().backward()", (0, 0, False, False)),
        (COMPILED.removeprefix("compiled = "), "train(net)", (0, 0, True, True)),
        (IN_PLACE, "train(net)", (0, 3, True, False)),
        (IN_PLACE, "train(net.forward)", (0, 0, True, False)),
        (FUNCTION, "taken < 2 and train(f)", (0, 2, False, False)),
    ],
    ids=["called", "raw module", "not trained", "dropped", "in place", "forward", "function"],
)
def test_what_ran_is_known(tmp_path, made, step, expected):
    _, drive = recorded(tmp_path, f"{made}\ndef step():\n    {step}\n")
    assert runs(drive) == [expected]


def test_a_pass_counts_its_own_steps_and_what_is_dropped_is_told_once(tmp_path):
    text = """
    torch.compile(net, backend="eager")
    compiled = torch.compile(net, backend="eager")
    def step():
        train(compiled)
    """
    _, drive = recorded(tmp_path, text, [("warmup", 2), ("quiet", 4)])
    assert runs(drive, "warmup") == [(0, 0, True, True), (1, 2, True, False)]
    assert runs(drive) == [(1, 4, True, False)]


def test_nothing_is_said_of_runs_that_the_program_forced_another_way(tmp_path):
    text = """
    compiled = torch.compile(net, backend="eager")
    torch.compiler.set_stance("force_eager")
    def step():
        train(compiled)
    """
    try:
        _, drive = recorded(tmp_path, text)
    finally:
        torch.compiler.set_stance("default")
    assert len(drive.rows("regions")) == 1
    assert runs(drive) == []


def test_more_regions_than_the_most_are_not_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(compiles, "MOST", 2)
    text = """
    kept = []
    def step():
        kept.append(torch.compile(net, backend="eager"))
    """
    _, drive = recorded(tmp_path, text)
    assert [row["number"] for row in drive.rows("regions")] == [0, 1, 2]
    assert [row[0] for row in runs(drive)] == [0, 1]


def test_classes_of_torch_are_told_from_the_users(tmp_path):
    text = """
    class Mine(torch.nn.Sequential):
        def forward(self, x):
            return super().forward(x)

    class Theirs(torch.nn.Sequential):
        pass

    def f(x):
        return net(x)

    for each in (Mine(net), Theirs(net), net, f):
        torch.compile(each, backend="eager")

    def step():
        pass
    """
    _, drive = recorded(tmp_path, text)
    assert [row.get("torchs", False) for row in drive.rows("regions")] == [False, True, True, False]


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
