"""When a program is run with torch.compile held off, and for how long."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from auditor.capture import passes
from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.passes import FREE_SHARE, LEAST, PATIENCE, HeldEager
from auditor.capture.probes.compile.compiles import EagerHeldProbe
from auditor.judging import catalogue, engine
from tests.capture.compiled_programs import model, whole_step
from tests.capture.test_compiled import fresh
from tests.inprocess import record

PARTS = engine.parts_of(catalogue.own_rules())


def made(native=False):
    said = []
    context = SimpleNamespace(device=SimpleNamespace(native=native), warn=said.append)
    return HeldEager(context), said


def test_a_program_that_ran_nothing_compiled_has_no_such_pass():
    held, said = made()
    held.begins()
    assert not held.wanted(1.0)
    COMPILED_CODE.calls += 1
    assert held.wanted(1.0)
    held.begins()
    assert not held.wanted(1.0)
    assert said == []


def test_the_pass_ends_when_it_takes_too_long():
    held, _ = made()
    held.begins()
    held.wanted(10.0)
    assert not held.enough(50, PATIENCE * 10.0)
    assert held.enough(LEAST, PATIENCE * 10.0 + 0.1)
    assert not held.enough(LEAST - 1, PATIENCE * 10.0 + 0.1)


@pytest.mark.parametrize(("share", "wanted"), [(FREE_SHARE, True), (FREE_SHARE + 0.01, False)])
def test_a_gpu_that_is_half_full_is_left_alone(monkeypatch, share, wanted):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: int(share * 1000))
    properties = SimpleNamespace(total_memory=1000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    held, said = made(native=True)
    held.begins()
    COMPILED_CODE.calls += 1
    assert held.wanted(1.0) is wanted
    assert [("more memory" in text) for text in said] == [True] * (not wanted)


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


def test_only_that_pass_ends_early(tmp_path, monkeypatch):
    fresh()
    monkeypatch.setattr(passes, "PATIENCE", 0.0)
    roots = [Path(__file__)]
    recording = record(
        tmp_path, lambda: model("eager"), PARTS, roots=roots, steps=LEAST + 2, device="cpu"
    )
    steps = {each["name"]: each["steps"] for each in recording.manifest["passes"]}
    assert (steps["quiet"], steps["eager_held"], steps["loud"]) == (LEAST + 2, LEAST, LEAST + 2)


def test_a_stance_of_the_programs_own_is_put_back():
    import torch._dynamo.eval_frame as eval_frame

    with torch.compiler.set_stance("eager_on_recompile"):
        probe = EagerHeldProbe(SimpleNamespace())
        probe.start()
        assert eval_frame._stance.stance == "force_eager"
        probe.stop()
        probe.stop()
        assert eval_frame._stance.stance == "eager_on_recompile"
