"""A target that dies early is judged as far as it came."""

import json
import textwrap

import pytest
import torch

from auditor.judging import catalogue
from auditor.judging.engine import parts_of
from auditor.recordings.folder import Recording
from auditor.runs import stages
from auditor.runs.plan import Audit, Plan

TRAINER = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)).to(device)
    unused = nn.Linear(8, 8).to(device)
    optimizer = torch.optim.AdamW([*model.parameters(), *unused.parameters()])
    loader = DataLoader(TensorDataset(torch.ones(9000, 8), torch.ones(9000, 1)), batch_size=8)
    batches = iter(loader)
    losses, n = [], 0

    def step():
        global n
        n += 1
        x, y = next(batches)
        optimizer.zero_grad()
        loss = (model(x.to(device)) - y.to(device)).square().mean()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())

    def dies():
        step()
        if n == 17:
            raise ValueError("the seventeenth step is bad")

    def handled():
        try:
            step()
            if n % 3 == 0:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("early")
    (path / "trainer.py").write_text(textwrap.dedent(TRAINER))
    return path


@pytest.fixture(scope="module")
def died(folder, audit):
    """Audited as users do: (finished process, report, folder of the results)."""
    out = folder / "out"
    done = audit("run", "trainer:dies", "--steps", "20", "--out", str(out), cwd=folder)
    return done, json.loads((out / "report.json").read_text()), out


def test_outcome_and_error_and_what_was_not_reached(died):
    done, report, _ = died
    assert done.returncode == 3
    error = report["run"]["error"]
    assert (error["step"], error["pass_name"], error["message"]) == (
        16,
        "quiet",
        "the seventeenth step is bad",
    )
    assert report["run"]["step_us"]["n"] == 11
    assert report["warnings"] == []
    verdicts = {each["code"]: each for each in report["verdicts"]}
    assert verdicts["SYNC001"]["status"] == "found", "by the rehearsal of the steps before"
    assert verdicts["GRAPH002"]["reason"].startswith("the run ended early (raised), before this")


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine with a GPU runs the path itself")
def test_the_steps_before_are_rehearsed(died):
    _, _, out = died
    rehearsed = Recording(out / "recording" / "rehearsal")
    assert rehearsed.manifest["outcome"] == "completed"
    assert {each["name"]: each["steps"] for each in rehearsed.manifest["passes"]} == {
        "loud": 12,
        "numbers": 3,
    }


def test_analyze_gives_the_same_from_the_recording_alone(died, folder, audit):
    _, report, out = died
    (folder / "away").mkdir()
    done = audit("analyze", str(out), "--out", str(folder / "again"), cwd=folder / "away")
    again = json.loads((folder / "again" / "report.json").read_text())
    assert done.returncode == 3
    assert again["findings"] == report["findings"]
    assert again["verdicts"] == report["verdicts"]
    assert again["warnings"] == report["warnings"]


def recorded(folder, target, out):
    rules = [rule for rule in catalogue.rules() if rule.code in ("SYNC001", "GRAPH002", "GRAPH005")]
    plan = Plan(target, (), 20, 5, "cpu", str(out), parts_of(rules))
    return Recording(stages.record(Audit(plan), None, lambda *_: None, lambda text: None).folder)


def steps_of(recording):
    rows = [row["pass"] for row in recording.rows("steps")]
    return {name: rows.count(name) for name in rows}


def test_steps_after_a_handled_error_count(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    recording = recorded(folder, "trainer:handled", tmp_path / "r")
    assert recording.manifest["outcome"] == "completed"
    steps = steps_of(recording)
    diagnosed = steps.pop("loud")
    assert steps == {"warmup": 5, "quiet": 20, "trace": 5}
    assert 12 <= diagnosed <= 20
    assert [row["step"] for row in recording.rows("steps") if row["pass"] == "loud"] == list(
        range(diagnosed)
    )
    assert recording.manifest["probes"] == {}


WATCHED = """
    import json, signal, threading
    import torch
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes

    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    n = 0

    def step():
        global n
        n += 1
        loss = model(torch.ones(4, 8)).exp().sum().log()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def ours():
        step()
        json.loads("" if modes() else "1")

    def theirs():
        step()
        json.loads("" if n == 12 else "1")

    def stopped():
        step()
        if modes():
            main = threading.main_thread().ident
            threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
            threading.Event().wait(20)
"""


@pytest.mark.parametrize(
    ("target", "outcome", "lost"),
    [
        ("ours", "completed", {"numerics"}),
        ("theirs", "raised", set()),
        ("stopped", "interrupted", set()),
    ],
)
def test_a_step_that_fails_only_under_our_watch_is_run_without_it(
    tmp_path, monkeypatch, target, outcome, lost
):
    """What the program raises in its own line, or without a watch too, is the program's."""
    (tmp_path / "watched.py").write_text(textwrap.dedent(WATCHED))
    monkeypatch.chdir(tmp_path)
    plan = Plan(f"watched:{target}", (), 4, 2, "cpu", str(tmp_path / "out"), ("numerics",))
    recording = stages.record(Audit(plan), None, lambda *_: None, lambda text: None)
    assert recording.outcome == outcome
    assert set(recording.manifest["probes"]) == lost
    assert sum(
        "while single operators were watched" in text for text in recording.manifest["warnings"]
    ) == len(lost)
    assert not (recording.folder / "unwatched").exists()
