"""A run on the null device: its plan, where there is none, a child that is not to be on one."""

from dataclasses import replace

from auditor import null_device
from auditor.errors import AuditProblem
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.runs import null_run
from auditor.runs.child_process import _surroundings
from auditor.runs.course import Course, Made, quiet
from auditor.runs.plan import Audit, Plan

PLAN = Plan("t:step", (), 5, 1, "auto", "/r", ("steps",))
AUDIT = Audit(PLAN, rehearsed=("reads",), native=("owners",))
LACKING = AuditProblem("no CUDA in it", "pip install x")


def course(recording, **more):
    made = [Made(PLAN.on_shadow(5), recording)]
    return Course(replace(AUDIT, **more), None, lambda *_: None, quiet, made)


def prepared(monkeypatch, audit, *, there):
    monkeypatch.setattr(null_device, "lacking", lambda: None if there else LACKING)
    return null_run.prepared(audit)


def test_with_a_cuda_build_shadow_and_null_device_play_one_model(monkeypatch):
    audit = prepared(monkeypatch, AUDIT, there=True)
    assert audit.run.gpu == "H100"
    assert (audit.rehearsed, audit.native) == (
        ("reads", "course"),
        ("owners", "course", "device_work"),
    )


def test_with_a_build_for_the_cpu_a_rehearsal_is_as_it_was(monkeypatch):
    assert prepared(monkeypatch, AUDIT, there=False) == replace(AUDIT, native=())


def test_the_model_that_is_asked_for_is_played_with_both(monkeypatch):
    asked = replace(AUDIT, run=replace(PLAN, gpu="T4"))
    for there in (True, False):
        assert prepared(monkeypatch, asked, there=there).run.gpu == "T4"


def test_the_plan_lies_beside_the_rehearsal_and_knows_its_values():
    plan = PLAN.rehearsal(("reads",)).on_null(("owners",), "/r/rehearsal", {"A": "b"}, 14)
    assert (plan.folder, plan.device, plan.parts) == ("/r/null", "null", ("owners",))
    assert (plan.answers, plan.steps) == ("/r/rehearsal", 14)
    assert Plan.from_json(plan.to_json()) == plan
    assert (_surroundings(plan) or {})["A"] == "b"


def test_a_rehearsal_that_cannot_be_followed_says_why_in_the_manifest(tmp_path, monkeypatch):
    write_manifest(tmp_path, {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"})
    recording = Recording(tmp_path)
    monkeypatch.setattr(null_device, "lacking", lambda: LACKING)
    null_run.beside(course(recording, native=()))
    kept = Recording(tmp_path).manifest
    assert kept["null_device"] == {"lacking": "no CUDA in it", "remedy": "pip install x"}
    assert not kept.get("warnings")


def test_a_null_device_that_cannot_be_built_costs_a_warning(tmp_path, monkeypatch):
    write_manifest(tmp_path, {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"})
    recording = Recording(tmp_path)

    def broken(*_, **__):
        raise AuditProblem("the compiler failed")

    monkeypatch.setattr(null_device, "lacking", lambda: None)
    monkeypatch.setattr(null_device, "environment", broken)
    null_run.beside(course(recording))
    (said,) = Recording(tmp_path).manifest["warnings"]
    assert said.endswith("could not be made: the compiler failed")
