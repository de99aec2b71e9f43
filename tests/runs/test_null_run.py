"""The plan of a run on the null device, what is said where there can be none, and the environment
of a child that is not to be on one.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.forecast.rehearsed import gpu_asked
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.runs import null_run
from auditor.runs.child_process import _surroundings
from auditor.runs.null_variables import without_null_device
from auditor.runs.plan import Plan

PLAN = Plan("t:step", (), 5, 1, "auto", "/r", ("steps",), rehearsed=("reads",), native=("owners",))
LACKING = AuditProblem("no CUDA in it", "pip install x")


def prepared(monkeypatch: pytest.MonkeyPatch, plan: Plan, *, there: bool) -> Plan:
    monkeypatch.setattr(null_run, "lacking", lambda: None if there else LACKING)
    return null_run.prepared(plan)


def test_with_a_cuda_build_shadow_and_null_device_play_one_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = prepared(monkeypatch, PLAN, there=True)
    assert plan.gpu == "H100"
    assert (plan.rehearsed, plan.native) == (
        ("reads", "course"),
        ("owners", "course", "device_work"),
    )


def test_with_a_build_for_the_cpu_a_rehearsal_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = prepared(monkeypatch, PLAN, there=False)
    assert (plan.gpu, plan.rehearsed, plan.native) == ("", ("reads",), ())


def test_the_model_that_is_asked_for_is_played_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(PLAN, gpu="T4")
    for there in (True, False):
        assert prepared(monkeypatch, asked, there=there).gpu == "T4"
    with pytest.raises(AuditProblem, match="no GPU model 'T5' is known"):
        gpu_asked("T5")
    assert gpu_asked("") == ("", "")


def test_the_plan_lies_beside_the_rehearsal_and_knows_its_values() -> None:
    plan = PLAN.rehearsal().on_null("/r/rehearsal", {"A": "b"})
    assert (plan.folder, plan.device, plan.parts) == ("/r/null", "null", ("owners",))
    assert (plan.answers, plan.steps) == ("/r/rehearsal", PLAN.rehearsal().steps)
    assert Plan.from_json(plan.to_json()) == plan
    assert (_surroundings(plan) or {})["A"] == "b"


def test_a_rehearsal_that_cannot_be_followed_says_why_in_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(tmp_path, {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"})
    recording = Recording(tmp_path)
    monkeypatch.setattr(null_run, "lacking", lambda: LACKING)
    null_run.beside(replace(PLAN, native=()), recording, recording, None, lambda *_: None)
    kept = Recording(tmp_path).manifest
    assert kept["null_device"] == {"lacking": "no CUDA in it", "remedy": "pip install x"}
    assert not kept.get("warnings")


def test_a_null_device_that_cannot_be_built_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_manifest(tmp_path, {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"})
    recording = Recording(tmp_path)

    def broken(*_: object, **__: object) -> dict[str, str]:
        raise AuditProblem("the compiler failed")

    monkeypatch.setattr(null_run, "lacking", lambda: None)
    monkeypatch.setattr("auditor.extensions.nulldevice.environment", broken)
    null_run.beside(PLAN, recording, recording, None, lambda *_: None)
    (said,) = Recording(tmp_path).manifest["warnings"]
    assert said.endswith("could not be made: the compiler failed")


def test_a_child_is_taken_off_the_null_device_that_we_are_on() -> None:
    ours = {
        "LD_PRELOAD": "/c/libnulldevice.so:/x/libasan.so",
        "LD_LIBRARY_PATH": "/c:/usr/lib",
        "TRITON_LIBCUDA_PATH": "/c",
        "NULLDEVICE_GPU": "name=x",
        "NULLDEVICE_COUNT": "1",
        "HOME": "/root",
    }
    assert without_null_device(ours) == {
        "LD_PRELOAD": "/x/libasan.so",
        "LD_LIBRARY_PATH": "/usr/lib",
        "HOME": "/root",
    }
    plain = {"LD_PRELOAD": "/x/libasan.so", "LD_LIBRARY_PATH": "/c"}
    assert without_null_device(plain) == plain
