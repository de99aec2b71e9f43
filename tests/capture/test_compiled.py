"""What the compiler makes of a program under an audit is what it makes of it without one."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.torch_private.compiler import MARK
from auditor.capture.target.script_steps import StepFinder
from auditor.judging import catalogue, engine
from tests.capture.compiled_programs import (
    PROGRAMS,
    Step,
    method_of_the_optimizer,
    optimizer,
    whole_step,
)
from tests.inprocess import record

PARTS = engine.parts_of(catalogue.own_rules())
Seen = tuple[float, int, int, int]


def counted(loss: torch.Tensor) -> Seen:
    """The loss, graphs, operators in them, and breaks so far."""
    from torch._dynamo.utils import counters

    stats = counters["stats"]
    breaks = sum(counters["graph_break"].values())
    return float(loss), stats["unique_graphs"], stats["calls_captured"], breaks


def fresh() -> None:
    import torch._dynamo

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(7)


def watched(step: Step, seen: list[Seen]) -> Callable[[], None]:
    def counting() -> None:
        seen.append(counted(step()))

    return counting


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_audit_leaves_a_compiled_program_as_it_is(name, backend, tmp_path):
    alone: list[Seen] = []
    audited: list[Seen] = []
    fresh()
    take = watched(PROGRAMS[name](backend), alone)
    for _ in range(5):
        take()
    assert alone[-1][1] > 0, "nothing was compiled"
    fresh()
    record(
        tmp_path / "recording",
        lambda: watched(PROGRAMS[name](backend), audited),
        PARTS,
        roots=[Path(__file__)],
        steps=3,
        warmup=2,
        device="cpu",
    )
    assert audited[:5] == alone


def test_a_whole_graph_stays_whole(tmp_path):
    """``fullgraph=True`` refuses any break: hooks of ours would be one."""

    def make() -> Callable[[], Any]:
        net = torch.nn.Linear(4, 4)
        sgd = torch.optim.SGD(net.parameters(), lr=torch.tensor(0.1), foreach=False)
        x = torch.randn(2, 4)

        @torch.compile(backend="eager", fullgraph=True)
        def forward() -> torch.Tensor:
            return net(x).square().mean()

        def step() -> None:
            forward().backward()
            sgd.step()
            sgd.zero_grad()

        return step

    fresh()
    recording = record(tmp_path, make, PARTS, roots=[Path(__file__)], steps=3, device="cpu")
    assert recording.manifest["outcome"] == "completed"


@pytest.mark.parametrize("make", [optimizer, method_of_the_optimizer, whole_step])
def test_steps_of_a_script_are_found_in_compiled_code(make):
    fresh()
    found: list[int] = []

    def on_step() -> None:
        found.append(len(found))
        torch.compiler.set_stance("default")  # refused inside compiled code

    finder = StepFinder(on_step)
    COMPILED_CODE.install()
    finder.install()
    try:
        step = make("eager")
        after = []
        for _ in range(4):
            step()
            after.append(len(found))
    finally:
        finder.uninstall()
        COMPILED_CODE.uninstall()
    assert after == [1, 2, 3, 4]
    assert finder.steps == 4
    step()
    assert len(found) == 4
    assert MARK.optimizer is None or not COMPILED_CODE._told


def test_the_compilers_rules_are_put_back():
    import torch._dynamo.eval_frame
    import torch._dynamo.trace_rules as rules

    before = (
        list(rules.SKIP_DIRS),
        rules.SKIP_DIRS_RE,
        torch._dynamo.eval_frame._maybe_set_eval_frame,
    )
    COMPILED_CODE.install()
    assert rules.SKIP_DIRS != before[0]
    assert rules.SKIP_DIRS_RE.match(sys.modules["auditor"].__file__ or "")
    assert not rules.SKIP_DIRS_RE.match(__file__)
    COMPILED_CODE.uninstall()
    COMPILED_CODE.uninstall()
    after = (
        list(rules.SKIP_DIRS),
        rules.SKIP_DIRS_RE,
        torch._dynamo.eval_frame._maybe_set_eval_frame,
    )
    assert (after[0], after[1].pattern, after[2]) == (before[0], before[1].pattern, before[2])


ALONE = """
import sys
import torch
from auditor.capture.instruments.compiled_code import COMPILED_CODE
ours = lambda: [each for each in sys.meta_path if type(each).__module__.startswith("auditor.")]
COMPILED_CODE.install()
assert len(ours()) == 1
COMPILED_CODE.uninstall()
assert ours() == []
assert "torch._dynamo" not in sys.modules
COMPILED_CODE.install()
import torch._dynamo
from torch._dynamo.trace_rules import SKIP_DIRS
assert "<audit>" in SKIP_DIRS
COMPILED_CODE.uninstall()
assert "<audit>" not in SKIP_DIRS
assert ours() == []
"""


def test_the_compiler_is_waited_for_and_never_imported():
    subprocess.run([sys.executable, "-c", ALONE], check=True, cwd=Path(__file__).parents[2])
