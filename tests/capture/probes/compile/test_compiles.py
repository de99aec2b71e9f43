"""What the probe writes of real compilations, at the lines of the program."""

from __future__ import annotations

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.compile.compiles import OTHER_MODE, CompilesProbe, _resumed, _why
from tests.capture.drive import Drive, line_of, load
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
    """Torch 2.6 tells no line of a guard and the function has its own; up to 2.9 what goes on after
    a break has the line of that.
    """
    torch_of = tuple(map(int, torch.__version__.split(".")[:2]))
    return line_of(
        program, "made" if torch_of < (2, 7) else "printed" if torch_of < (2, 10) else "guarded"
    )


def test_compilations_breaks_and_guards_have_their_lines(tmp_path):
    program, drive = recorded(tmp_path, ["1", "2", "2"])
    rows = drive.rows("compiles")
    told = [(row["what"], row["step"], row.get("at_line")) for row in rows]
    printed, guarded = line_of(program, "printed"), guard_line(program)
    assert told == [
        ("break", 0, printed),
        ("compile", 0, None),
        ("compile", 0, None),
        ("recompile", 1, guarded),
        ("compile", 1, None),
    ]
    assert {row["function"] for row in rows} == {"forward"}
    assert rows[0]["reason"].startswith("Failed to trace builtin operator. Dynamo does not know")
    assert rows[0]["gb"] == "gb0059"
    assert rows[3]["reason"].endswith("== '1'")
    assert rows[3]["frame"] == rows[4]["frame"] == rows[2]["frame"]
    assert [row.get("attempt", 0) for row in rows] == [0, 0, 0, 1, 1]
    resumed = [row.get("resumed") for row in rows]
    assert resumed[0] == resumed[2] == resumed[4] == rows[0]["at"]
    assert resumed[1] is resumed[3] is None
    assert all(row["us"] > 0 for row in rows if row["what"] == "compile")


def test_the_limit_is_told_once_it_is_reached(tmp_path):
    program, drive = recorded(tmp_path, [str(n) for n in range(12)])
    limits = [row for row in drive.rows("compiles") if row["what"] == "limit"]
    assert [(row["step"], row["at_line"]) for row in limits] == [(8, guard_line(program))]


def test_a_program_that_compiles_nothing_has_no_rows(tmp_path):
    with Drive(tmp_path, CompilesProbe) as drive:
        program = load(tmp_path, "def step():\n    pass\n")
        drive.run("quiet", program.step)
    assert drive.rows("compiles") == []


def test_reasons_and_names_are_shortened():
    text = "Graph break in user code at a.py:3\nReason: Data-dependent jump\nUser code traceback:\n"
    assert _why(text) == "Data-dependent jump"
    assert _resumed("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_3_at_4") == "f"


SHARED = """
import torch

def layers():
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())

teacher = torch.compile(layers().requires_grad_(False), backend="eager")
student = torch.compile(layers(), backend="eager")

def step(n):
    x = torch.ones(n, 4)
    with torch.no_grad():
        wanted = teacher(x)
    (student(x) - wanted).square().mean().backward()
"""


def test_an_entry_of_the_other_grad_mode_is_not_why_a_length_is_compiled_anew(tmp_path):
    """Two modules of one class have one frame, whose entries are of both modes."""
    _, drive = recorded(tmp_path, [8, 8, 5, 5], SHARED)
    reasons = [(row["step"], row["reason"]) for row in drive.rows("compiles") if "reason" in row]
    assert [step for step, _ in reasons] == [0, 2, 2]
    assert [OTHER_MODE in reason for _, reason in reasons] == [True, False, False]


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
        with Drive(tmp_path, CompilesProbe) as drive:
            program = load(tmp_path, LOST)
            drive.run("quiet", program.step, 1)
    finally:
        COMPILED_CODE.uninstall()
    broken = [row for row in drive.rows("compiles") if row["what"] == "break"]
    assert [(row["at_line"], row["own"], row["lost"]) for row in broken] == [
        (line_of(program, "printed"), True, True)
    ]
    assert broken[0]["reason"].startswith("Failed to trace builtin operator. Dynamo")
