"""What the probe writes of real compilations, at the lines of the program."""

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.compile.compiles import CompilesProbe, _resumed, _why
from tests.capture.drive import Drive, line_of, load, watched
from tests.capture.test_compiled import fresh

PROGRAM = """
import torch

net, state = torch.nn.Linear(4, 4), {"n": ""}

@torch.compile(backend="eager")  # made
def forward(x):
    h = net(x)
    print(end="")  # printed
    return h * (2 if state["n"] == "last" else 1)  # guarded

def step(n="1"):
    state["n"] = n
    forward(torch.ones(2, 4)).sum().backward()
"""


def recorded(tmp_path, values, text=PROGRAM):
    fresh()
    COMPILED_CODE.install()
    try:
        with Drive(tmp_path, CompilesProbe) as drive:
            program = load(tmp_path, text)
            taken = iter(values)
            drive.run("quiet", lambda: program.step(next(taken)), len(values))
    finally:
        COMPILED_CODE.uninstall()
    assert drive.warnings == []
    return program, drive


def guard_line(program):
    """Torch up to 2.6 and 2.9 has the function's line, and that of the break before."""
    torch_of = tuple(map(int, torch.__version__.split(".")[:2]))
    return line_of(
        program, "made" if torch_of < (2, 7) else "printed" if torch_of < (2, 10) else "guarded"
    )


def test_the_limit_is_told_once_it_is_reached(tmp_path):
    program, drive = recorded(tmp_path, [str(n) for n in range(12)])
    limits = [row for row in drive.rows("compiles") if row["what"] == "limit"]
    assert [(row["step"], row["at_line"]) for row in limits] == [(8, guard_line(program))]


def test_reasons_and_names_are_shortened():
    text = "Graph break in user code at a.py:3\nReason: Data-dependent jump\nUser code traceback:\n"
    assert _why(text) == "Data-dependent jump"
    assert _resumed("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_4") == "f"


LOST = """
import torch

@torch.compile(backend="eager")
def forward(x):
    for _ in range(2):
        x = x + 1
        print(end="")  # printed
    return x

def step():
    forward(torch.ones(2))
"""


def test_a_function_that_is_left_to_python_as_a_whole_is_marked(tmp_path):
    fresh()
    COMPILED_CODE.install()
    try:
        program, drive = watched(tmp_path, LOST, CompilesProbe, run="quiet", steps=1)
    finally:
        COMPILED_CODE.uninstall()
    broken = [row for row in drive.rows("compiles") if row["what"] == "break"]
    assert [(row["at_line"], row["own"], row["lost"]) for row in broken] == [
        (line_of(program, "printed"), True, True)
    ]
    assert broken[0]["reason"].startswith("Failed to trace builtin operator. Dynamo")
