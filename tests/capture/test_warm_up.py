"""The warm-up goes on until the program has compiled; of other programs it is as long as planned."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording
from auditor.runs.schedule import MORE_STEPS
from tests.capture.test_compiled import fresh
from tests.inprocess import record


def recorded(folder, forward):
    """A recording of a step that calls ``forward(its number)``."""
    fresh()

    def make() -> Callable[[], None]:
        weight, taken = torch.ones(4, 4, requires_grad=True), [0]

        def step() -> None:
            taken[0] += 1
            forward(taken[0])(weight).sum().backward()

        return step

    return record(folder, make, ("calls",), roots=[Path(__file__)], steps=3, device="cpu")


def steps_of(recording: Recording, name: str) -> int:
    return sum(each["steps"] for each in recording.manifest["passes"] if each["name"] == name)


def compiling_until(last: int) -> Callable[[int], Callable[[Any], Any]]:
    kept: dict[int, Any] = {}

    def forward(number: int) -> Callable[[Any], Any]:
        number = min(number, last)
        if number not in kept:
            kept[number] = torch.compile(eval(f"lambda w: w * {number}"), backend="eager")
        return kept[number]

    return forward


def test_it_ends_after_three_steps_that_compiled_nothing(tmp_path):
    recording = recorded(tmp_path, compiling_until(4))
    assert steps_of(recording, "warmup") == 4 + 3
    compiled = [
        row.get("compiles", 0) for row in recording.rows("steps") if row["pass"] == "warmup"
    ]
    assert compiled == [1] * 4 + [0] * 3
    assert recording.manifest["warnings"] == [
        "the warm-up took 7 steps, 5 more than planned: torch.compile was still compiling"
    ]


def test_it_has_an_end_where_each_step_compiles(tmp_path):
    recording = recorded(tmp_path, compiling_until(1000))
    assert steps_of(recording, "warmup") == 2 + MORE_STEPS
    assert recording.manifest["warnings"] == [
        "torch.compile still compiled after 22 warm-up steps: compilation does not settle"
    ]
    assert [step.compiles for step in Evidence(recording).get(Steps).quiet] == [1, 1, 1]


def test_a_timed_step_that_compiled_is_marked(tmp_path):
    forward = compiling_until(2)
    recording = recorded(tmp_path, lambda number: forward(1 if number < 6 else 2))
    assert steps_of(recording, "warmup") == 1 + 3
    assert [step.compiles for step in Evidence(recording).get(Steps).quiet] == [0, 1, 0]
