"""A program is run for a while with torch.compile held off."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.compile.compiles import EagerHeldProbe
from auditor.judging import catalogue, engine
from tests.capture.compiled_programs import model, whole_step
from tests.capture.test_compiled import fresh
from tests.inprocess import record

PARTS = engine.parts_of(catalogue.own_rules())


@pytest.mark.parametrize("make", [model, whole_step])
def test_compiled_functions_run_eagerly_in_it_and_are_compiled_once(make, tmp_path):
    fresh()
    compiled, stances = [], []

    def program():
        step = make("eager")

        def counted():
            before = COMPILED_CODE.calls
            step()
            compiled.append(COMPILED_CODE.calls > before)
            stances.append(torch._dynamo.eval_frame._stance.stance)

        return counted

    roots = [Path(__file__)]
    recording = record(tmp_path, program, PARTS, roots=roots, steps=6, warmup=3, device="cpu")
    passes = [(each["name"], each["steps"]) for each in recording.manifest["passes"]]
    assert passes[1:3] == [("quiet", 6), ("eager_held", 6)]
    first = passes[0][1] + 6
    assert compiled[:first] == [True] * first
    assert compiled[first : first + 6] == [False] * 6
    assert all(compiled[first + 6 : first + 9])
    assert stances[: first + 12] == ["default"] * first + ["force_eager"] * 6 + ["default"] * 6


def test_a_stance_of_the_programs_own_is_put_back():
    import torch._dynamo.eval_frame as eval_frame

    with torch.compiler.set_stance("eager_on_recompile"):
        probe = EagerHeldProbe(SimpleNamespace())
        probe.start()
        assert eval_frame._stance.stance == "force_eager"
        probe.stop()
        probe.stop()
        assert eval_frame._stance.stance == "eager_on_recompile"
