"""A run that goes bad is replayed in a process: the very line is named; its repair is silent."""

import json
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.runs import child_process, stages
from auditor.runs.course import Course, Made, quiet
from auditor.runs.plan import Audit, Plan
from auditor.runs.stages import replay

RULE = catalogue.rule("NUM002")

TRAINER = """
    import torch
    from torch import nn

    torch.manual_seed(1)


    def transport(scores, rounds=3):
        plan = torch.exp(scores)
        for _ in range(rounds):
            plan = plan / plan.sum(-1, keepdim=True)
            plan = plan / plan.sum(-2, keepdim=True)
        return plan


    class Router(nn.Module):
        def __init__(self):
            super().__init__()
            self.keys = nn.Linear(6, 8)
            self.sharpness = nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            keys = self.keys(x)
            return transport(keys @ keys.T * self.sharpness.exp())


    model = Router()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.2)


    def step():
        loss = -torch.log(model(torch.randn(5, 6)).diagonal().clamp(min=1e-9)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LINE = "plan = torch.exp(scores)"

REPAIRED = """
    def transport(scores, rounds=3):
        for _ in range(rounds):
            scores = scores - scores.logsumexp(-1, keepdim=True)
            scores = scores - scores.logsumexp(-2, keepdim=True)
        return scores.exp()
"""

LOOP = """
    for number in range(200):
        print("iteration", number)
        step()
"""

ONCE = """
    import pathlib
    marker = pathlib.Path("went_bad")
    bad_at = 99 if marker.exists() else 6
    calls = 0
    good = step

    def step():
        global calls
        calls += 1
        if calls == bad_at:
            marker.touch()
            model.keys.weight.grad.fill_(float("nan"))
            optimizer.step()
        else:
            good()
"""

GUARDED = """
    unguarded = step

    def step():
        unguarded()
        if not all(torch.isfinite(parameter).all() for parameter in model.parameters()):
            raise RuntimeError("the weights are gone")
"""


def program(*parts):
    return "".join(textwrap.dedent(part) for part in parts)


PROGRAMS = {
    "trainer": program(TRAINER),
    "repaired": program(TRAINER, REPAIRED),
    "script": program(TRAINER, LOOP),
    "once": program(TRAINER, REPAIRED, ONCE),
    "guarded": program(TRAINER, GUARDED),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay")
    for name, source in PROGRAMS.items():
        (path / f"{name}.py").write_text(source)
    return path


@pytest.fixture(scope="module")
def runs(folder, audit):
    """Programs audited, two at a time: (finished process, report, folder of the results)."""

    def one(name):
        out, target = folder / f"out-{name}", "script.py" if name == "script" else f"{name}:step"
        words = f"run {target} --steps 16 --select NUM002 --device cpu --out"
        done = audit(words, str(out), cwd=folder)
        return done, json.loads((out / "report.json").read_text()), out

    with ThreadPoolExecutor(2) as pool:
        names = [name for name in PROGRAMS if name != "once"]
        return dict(zip(names, pool.map(one, names), strict=True))


@pytest.mark.parametrize("name", ["trainer", "script", "guarded"])
def test_the_very_line_is_named(runs, name):
    _, report, _ = runs[name]
    (finding,) = report["findings"]
    assert finding["code"] == "NUM002"
    assert finding["severity"] == "error"
    assert finding["site"]["file"] == f"{name}.py"
    assert finding["site"]["text"] == LINE
    assert finding["message"].startswith("exp produced inf at step ")
    assert "float32 overflows at 88.7" in finding["message"]
    assert not [text for text in report["warnings"] if "replay" in text]


def test_the_report_shows_the_line_and_the_manual(runs):
    done, report, out = runs["trainer"]
    assert done.returncode == 0
    (finding,) = report["findings"]
    assert LINE in (out / "report.html").read_text()
    where = f"{finding['site']['file']}:{finding['site']['line']}"
    assert any(LINE in line for line in report["excerpts"][where]["lines"])
    assert "NUM002" in report["manual"]


def test_the_repaired_twin_is_silent_and_was_looked_at(runs):
    _, report, out = runs["repaired"]
    assert report["findings"] == []
    assert [verdict["status"] for verdict in report["verdicts"]] == ["clean"]
    assert not (out / "recording" / "replay").exists()


def test_a_target_that_ended_itself_is_explained_all_the_same(runs):
    done, report, _ = runs["guarded"]
    assert done.returncode == 3
    assert report["run"]["error"]["message"] == "the weights are gone"


def test_what_a_replay_does_not_repeat_is_reported_without_a_line(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder)
    told = []
    plan = Plan("once:step", (), 10, 2, "cpu", str(tmp_path / "r"), ("nonfinite",))
    recording = stages.record(Audit(plan), None, lambda *done: told.append(done), lambda text: None)
    assert told[-1] == ("replay", 6, 6)
    assert any(
        "did not reproduce" in text for text in Recording(recording.folder).manifest["warnings"]
    )
    (finding,) = engine.judge(Evidence(recording), (RULE,)).findings
    assert finding.site is None
    assert "step 5 (not seen again in a replay)" in finding.message
    assert "the gradient of keys.weight was NaN" in finding.message


def test_the_target_speaks_once(runs):
    done, _, out = runs["script"]
    assert done.stderr.count("iteration 0\n") == 1
    assert (out / "recording" / "replay" / "output.txt").read_text().startswith("iteration 0\n")


def test_analyze_gives_the_same_from_the_recording_alone(runs, folder, audit):
    _, report, out = runs["trainer"]
    (folder / "trainer.py").rename(folder / "trainer.gone")
    try:
        audit("analyze", str(out), "--select", "NUM002", "--out", str(folder / "again"), cwd=folder)
    finally:
        (folder / "trainer.gone").rename(folder / "trainer.py")
    again = json.loads((folder / "again" / "report.json").read_text())
    assert again["findings"] == report["findings"]
    assert again["excerpts"] == report["excerpts"]


# -- the parent's side -----------------------------------------------------------------------------


def went_bad(writer, in_pass, step):
    tensors = [{"name": "w", "shape": [1], "value": "nan"}]
    at = {"pass": in_pass, "step": step, "global_step": step, "last_good": step - 1}
    writer.add_fields("nonfinite", {**at, "what": "gradient", "tensors": tensors, "n": 1})


def recorded(folder, *, seconds=1.0):
    """A recording of ten steps, of which the fifth went bad."""
    writer = RecordingWriter(folder)
    for step in range(10):
        writer.add_fields(
            "steps",
            {"pass": "quiet", "step": step, "us": 1e5 * seconds, "start_us": 1e5 * seconds * step},
        )
    went_bad(writer, "loud", 4)
    writer.close()
    write_manifest(
        folder, {"schema": SCHEMA, "cwd": str(folder), "outcome": "completed", "warnings": []}
    )
    return Plan("a:b", (), 5, 5, "cpu", str(folder), ("nonfinite",)), Recording(folder)


def replayed(plan, recording, deadline=None):
    made = Made(plan, recording)
    replay(Course(Audit(plan), deadline, lambda *_: None, quiet, [made]), made)


def test_no_replay_where_the_time_left_is_too_short(tmp_path, monkeypatch):
    plan, recording = recorded(tmp_path / "r", seconds=100.0)
    monkeypatch.setattr(child_process, "record_once", lambda *_: pytest.fail("replayed"))
    replayed(plan, recording, time.monotonic() + 40.0)
    (warning,) = Recording(recording.folder).manifest["warnings"]
    assert warning == "step 4 was not replayed: the time given is used up"


def test_a_replay_that_goes_bad_before_its_watch_is_done_again_for_that_step(tmp_path, monkeypatch):
    plan, recording = recorded(tmp_path / "r")
    wanted = []

    def again(plan, *_):
        wanted.append(plan.watched)
        writer = RecordingWriter(Path(plan.folder))
        went_bad(writer, "replay", 1)
        writer.close()
        write_manifest(
            Path(plan.folder), {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"}
        )
        return Recording(Path(plan.folder))

    monkeypatch.setattr(child_process, "record_once", again)
    recording.manifest["sources"] = {}
    replayed(plan, recording)
    assert wanted == [range(3, 5), range(2)]
    assert len(Recording(recording.folder / "replay").rows("nonfinite")) == 1
