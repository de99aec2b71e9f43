"""A run that is watched: no bit of it differs, everything is put back between looks, and what is
found is told while it goes on.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from pathlib import Path

import pytest
import torch
from auditor.reports import as_json

import auditor
from auditor.capture import here
from auditor.errors import AuditProblem
from auditor.extensions.longrun import judging, observer, requests, run
from auditor.extensions.longrun.meter import counters, host_bytes
from auditor.extensions.longrun.requests import Request
from auditor.extensions.longrun.run import NextBackward
from tests.api.test_python import hooks, training


@pytest.fixture(autouse=True)
def room(tmp_path, monkeypatch):
    monkeypatch.setattr(requests, "room", lambda: tmp_path / "room")


def rows(folder: Path, kind: str = "") -> list[dict]:
    found = [json.loads(line) for line in (folder / "watch.jsonl").read_text().splitlines()]
    return [row for row in found if not kind or row["kind"] == kind]


def watched(tmp_path, every=20, steps=8, **options):
    given = {"select": "GRAPH001", "out": tmp_path / "out", "budget": 1.0, **options}
    return auditor.watch(every=every, steps=steps, **given)


class Judged:
    """In the place of the process that judges: it has nothing to say."""

    def __init__(self, folder, plan, codes, now):
        self.folder = folder

    def done(self, now):
        return {"error": "nobody judged"}

    def wait(self, seconds):
        pass


@pytest.fixture
def unjudged(monkeypatch):
    monkeypatch.setattr("auditor.extensions.longrun.look.Judge", Judged)


@pytest.fixture
def often(monkeypatch):
    """A beat at each step, and a second at each beat."""
    monkeypatch.setattr("auditor.extensions.longrun.meter.BEAT_S", 0.0)
    for name in ("ASKED_S", "PULSE_S"):
        monkeypatch.setattr(run, name, 0.0)


# -- the whole -------------------------------------------------------------------------------------


def test_a_watched_run_finds_what_is_wrong_and_no_bit_differs(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(run, "LAST_JUDGE_S", 300.0)
    before, between = hooks(), []
    model, step = training()
    with watched(tmp_path) as seen:
        idle = hooks()
        for _ in range(45):
            step()
            between.append(hooks() == idle)
        state = [*model.parameters(), torch.randn(3)]
    assert hooks() == before
    quiet = [number for number, clean in enumerate(between, 1) if clean]
    # a look is due at step 20; it begins with the backward of step 21, and is off with that of 30
    assert set(range(1, 20)) <= set(quiet) and set(range(31, 40)) <= set(quiet)
    assert not set(range(21, 29)) & set(quiet)
    model, step = training()
    for _ in range(45):
        step()
    for one, other in zip(state, [*model.parameters(), torch.randn(3)], strict=True):
        assert torch.equal(one, other)

    out = tmp_path / "out"
    first, *_ = rows(out, "look")
    assert first["why"] == "every 20 steps" and first["steps"] == 9
    told, *_ = rows(out, "findings")
    assert told["codes"] == ["GRAPH001"] and told["new"][0]["site"].startswith("tests/")
    assert seen.report == Path(told["report"]) and seen.report.is_file()
    report = as_json.read(seen.report.with_name("report.json"))
    assert report.run.in_process and [each.code for each in report.findings] == ["GRAPH001"]
    assert any("a look at a long run: every 20 steps" in each for each in report.warnings)
    assert [each.name for each in caplog.records if "GRAPH001" in each.message] == ["auditor"]
    assert rows(out)[0]["kind"] == "started" and rows(out)[-1]["kind"] == "ended"
    assert (seen.report.parent / judging.LOG).read_text() == ""


# -- what begins a look ----------------------------------------------------------------------------


def test_a_file_and_a_request_each_begin_a_look(tmp_path, unjudged, often):
    _, step = training()
    with watched(tmp_path, every=10**6) as seen:
        step()
        (tmp_path / "out" / "look").write_text("")
        for _ in range(14):
            step()
        assert not (tmp_path / "out" / "look").exists()
        request = Request(os.getpid())
        request.send()
        for _ in range(14):
            step()
        assert request.answer() == {"problem": "nobody judged"}
        seen.look()
        for _ in range(14):
            step()
    looks = rows(tmp_path / "out", "look")
    assert [each["why"] for each in looks] == ["asked for"] * 3
    with pytest.raises(AuditProblem, match="does not watch"):
        Request(os.getpid())


def test_a_loss_that_is_not_finite_begins_a_look(tmp_path, unjudged, caplog):
    _, step = training()
    numbers = []
    with watched(tmp_path, every=10**6, log_to=lambda *each: numbers.append(each)) as seen:
        for number in range(20):
            step()
            seen.log(loss=float("nan") if number >= 5 else 1.0, lr=0.1)
    (told,) = rows(tmp_path / "out", "loss")
    assert told["looks"] and told["step"] == 6
    (look,) = rows(tmp_path / "out", "look")
    assert look["why"] == "the logged loss is nan"
    assert sum("loss is nan" in each.message for each in caplog.records) == 1
    assert ("loss", 1.0, 1) in numbers and ("lr", 0.1, 1) in numbers
    assert {name for name, _, _ in numbers} >= {"watch/step_ms", "watch/host_bytes"}


def test_slower_steps_begin_a_look(tmp_path, unjudged, often, monkeypatch):
    """The clock is the test's own: steps of 10 ms, then of 20."""
    now = [0.0]
    _, step = training()
    seen = watched(tmp_path, every=10**6)
    seen._clock = lambda: now[0]
    monkeypatch.setattr(observer, "COUNTERS_S", 1e9)
    with seen:
        for number in range(100):
            now[0] += 0.01 if number < 60 else 0.02
            step()
    assert seen._observer.beats.times.n > 60, "each step's time is kept, not that of a beat's last"
    (told,) = rows(tmp_path / "out", "step time")
    assert told["before"] == pytest.approx(0.01) and told["now"] == pytest.approx(0.02)
    assert told["step"] == 68
    (look,) = rows(tmp_path / "out", "look")
    assert look["why"].startswith("a step took 10 ms, and now takes 20 ms")


def test_memory_that_grows_and_jumps_is_told(monkeypatch):
    level = [1000 << 20]
    monkeypatch.setattr(observer, "counters", lambda: observer.Counters(level[0]))
    seen, found = observer.Observer(), []
    for number in range(400):
        level[0] += 1 << 20
        if number == 300:
            level[0] += 1000 << 20
        seen.step(5.0 * number)
        found += [(each.kind, number) for each in seen.beat(5.0 * number)]
    kinds = [kind for kind, _ in found]
    assert "growth" in kinds and kinds.count("memory") == 1
    assert dict(found)["memory"] == 302


def test_cuda_counters_are_read_only_where_cuda_is_in_use(monkeypatch):
    stats = {"allocated_bytes.all.current": 5, "reserved_bytes.all.current": 9, "num_ooms": 1}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: stats)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert counters().allocated is None and counters().host == pytest.approx(host_bytes(), rel=0.1)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    read = counters()
    assert (read.allocated, read.reserved, read.retries) == (5, 9, 1)


# -- what must not happen --------------------------------------------------------------------------


def test_a_tensor_is_not_read(tmp_path, caplog):
    with watched(tmp_path) as seen:
        seen.log(loss=torch.tensor(1.0), size=3)
        seen.log(loss=torch.tensor(1.0))
    assert sum("not tensors" in each.message for each in caplog.records) == 1


@pytest.mark.parametrize("where", ["step", "begin", "leave", "sink"])
def test_a_fault_of_ours_reaches_no_program(tmp_path, unjudged, often, monkeypatch, where):
    def broken(*_, **__):
        raise KeyError("ours")

    before = hooks()
    model, step = training()
    options = {"log_to": broken} if where == "sink" else {}
    if where == "step":
        monkeypatch.setattr(observer.Observer, "step", broken)
    if where == "begin":
        monkeypatch.setattr(here.Here, "watch_told", broken)
    if where == "leave":
        monkeypatch.setattr("auditor.extensions.longrun.look.Look.judged", broken)
    with watched(tmp_path, every=10, **options):
        for _ in range(30):
            step()
        state = [each.clone() for each in model.parameters()]
    assert hooks() == before
    faults = {each["problem"] for each in rows(tmp_path / "out", "fault")}
    assert faults == {"KeyError: 'ours'"}
    with here.alone():
        pass
    model, step = training()
    for _ in range(30):
        step()
    assert all(map(torch.equal, state, model.parameters()))


def test_a_run_that_raises_in_a_look_is_put_back_and_keeps_what_was_seen(tmp_path, unjudged):
    before = hooks()
    _, step = training()
    with pytest.raises(ZeroDivisionError), watched(tmp_path, every=10):
        for number in range(15):
            step()
            _ = 1 / (14 - number)
    assert hooks() == before
    (look,) = rows(tmp_path / "out", "look")
    assert 1 <= look["steps"] <= 5
    assert (Path(look["folder"]) / "recording" / "manifest.json").is_file()


def test_a_look_waits_for_the_programs_own_profiler(tmp_path, unjudged):
    _, step = training()
    with watched(tmp_path, every=10):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs:
            for _ in range(20):
                step()
        counts = {each.key: each.count for each in theirs.key_averages()}
        assert counts["aten::addmm"] == 20
        for _ in range(15):
            step()
    (look,) = rows(tmp_path / "out", "look")
    assert look["step"] >= 28


def test_another_audit_comes_first(tmp_path, unjudged):
    _, step = training()
    with watched(tmp_path, every=10), here.alone():
        for _ in range(15):
            step()
    (refused,) = rows(tmp_path / "out", "not looked")
    assert "another audit is going on" in refused["problem"]
    assert list((tmp_path / "out" / "looks").iterdir()) == []


def test_steps_in_another_thread_are_counted_and_not_looked_at(tmp_path, unjudged):
    _, step = training()
    with watched(tmp_path, every=10) as seen:
        thread = threading.Thread(target=lambda: [step() for _ in range(15)])
        thread.start()
        thread.join()
        assert seen.steps == 15
        step()
        assert seen.steps == 15, "one loop is watched"
    (refused,) = rows(tmp_path / "out", "not looked")
    assert "main thread" in refused["problem"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_copy_of_the_process_does_nothing(tmp_path, unjudged):
    _, step = training()
    with watched(tmp_path, every=10) as seen:
        for _ in range(9):
            step()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for _ in range(5):
                    step()
                seen.log(loss=float("nan"))
                seen.close()
                code = 0 if seen.steps == 9 else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert Request(os.getpid()).alive, "the copy left the request's file alone"
    assert rows(tmp_path / "out", "look") == [] and len(rows(tmp_path / "out", "ended")) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 8}, "leaves nothing between looks"),
        ({"steps": 5}, "at least 6 steps"),
        ({"keep": 0}, "keep is at least 1"),
        ({"budget": 0}, "budget a share"),
        ({"budget": 1.5}, "budget a share"),
        ({"select": "NOPE9"}, "NOPE9"),
        ({"log_to": 5}, "log_to takes"),
    ],
)
def test_what_cannot_be_is_told_before_training(tmp_path, options, said):
    with pytest.raises(AuditProblem, match=said):
        watched(tmp_path, **options)


def test_ranks_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with watched(tmp_path):
        pass
    assert [each["kind"] for each in rows(tmp_path / "out" / "rank1")] == [
        "started",
        "pulse",
        "ended",
    ]


def test_a_run_can_be_watched_again_and_is_not_watched_twice(tmp_path, caplog):
    before = hooks()
    seen = watched(tmp_path)
    seen.start()
    once = hooks()
    seen.start()
    assert hooks() == once
    with watched(tmp_path) as other:
        assert hooks() == once
        other.log(loss=1.0)
    assert ["not watched: another process is watching into" in m for m in caplog.messages] == [True]
    seen.close()
    seen.close()
    with watched(tmp_path):
        pass
    assert len(rows(tmp_path / "out", "ended")) == 2 and hooks() == before


def test_a_folder_that_cannot_be_written_stops_no_training(tmp_path, caplog):
    (tmp_path / "out").write_text("")
    before = hooks()
    _, step = training()
    with watched(tmp_path, every=10) as seen:
        for _ in range(12):
            step()
        assert hooks() == before and seen.steps == 0
    assert "cannot be written" in caplog.text


def test_a_process_that_audit_run_records_is_not_watched(tmp_path, monkeypatch):
    monkeypatch.setattr("auditor.capture.child.RECORDS", True)
    before = hooks()
    with watched(tmp_path):
        assert hooks() == before
    assert not (tmp_path / "out").exists()


def test_one_warning_of_a_kind_in_ten_minutes(tmp_path, caplog):
    now = [0.0]
    seen = watched(tmp_path)
    seen._clock = lambda: now[0]
    with caplog.at_level(logging.WARNING, "auditor"), seen:
        for seconds in (0.0, 599.0, 600.0):
            now[0] = seconds
            seen._warn("memory", f"at {seconds}")
    assert [each.message for each in caplog.records] == ["at 0.0", "at 600.0"]


# -- the next backward -----------------------------------------------------------------------------


def test_work_is_done_as_the_next_backward_begins_and_once():
    before, done = torch.autograd.backward, []
    later = NextBackward(lambda: allowed[0], done.append)
    allowed = [False]

    def backward():
        torch.ones(1, requires_grad=True).sum().backward()

    later.do(lambda: done.append("done"))
    assert later and torch.autograd.backward is not before
    backward()
    assert done == [] and later, "not now"
    allowed[0] = True
    backward()
    backward()
    assert done == ["done"] and not later and torch.autograd.backward is before
    later.do(lambda: done.append("never"))
    later.cancel()
    later.cancel()
    backward()
    assert done == ["done"] and torch.autograd.backward is before


def test_what_the_work_patches_is_called_and_what_it_takes_away_is_not(monkeypatch):
    """Instruments that are put on, and taken off, stand in the same place."""
    true, seen = torch.autograd.backward, []

    def theirs(*args, **kwargs):
        seen.append("theirs")
        true(*args, **kwargs)

    def failed(error):
        raise AssertionError from error

    later = NextBackward(lambda: True, failed)
    later.do(lambda: monkeypatch.setattr(torch.autograd, "backward", theirs))
    torch.ones(1, requires_grad=True).sum().backward()
    assert seen == ["theirs"]
    later.do(lambda: monkeypatch.setattr(torch.autograd, "backward", true))
    torch.ones(1, requires_grad=True).sum().backward()
    assert seen == ["theirs"] and torch.autograd.backward is true


def test_a_patch_that_another_puts_over_ours_stays():
    true, done = torch.autograd.backward, []
    later = NextBackward(lambda: True, done.append)
    later.do(lambda: done.append(1))
    ours = torch.autograd.backward

    def over(*args, **kwargs):
        return ours(*args, **kwargs)

    torch.autograd.backward = over
    try:
        torch.ones(1, requires_grad=True).sum().backward()
        assert done == [1] and torch.autograd.backward is over
        later.do(lambda: done.append(2))
        torch.ones(1, requires_grad=True).sum().backward()
        assert done == [1, 2] and torch.autograd.backward is over
        torch.autograd.backward = ours
        later.cancel()
        assert torch.autograd.backward is true
    finally:
        torch.autograd.backward = true


# -- the process that judges -----------------------------------------------------------------------


def test_a_judge_that_fails_says_so(tmp_path):
    judge = judging.Judge(tmp_path, "{}", "[[], []]", 0.0)
    judge.wait(300)
    assert "judging failed (" in judge.done(1.0)["error"]


@pytest.mark.parametrize(
    ("program", "now", "said"),
    [
        ("import time; time.sleep(60)", judging.LIMIT_S, "was ended"),
        ("import sys; sys.exit(7)", 1.0, "exit code 7"),
        ("open(sys.argv[2] + '/judged.json', 'w').write('[]')", 1.0, "said nothing"),
    ],
)
def test_a_judge_that_hangs_dies_or_babbles(tmp_path, monkeypatch, program, now, said):
    monkeypatch.setattr(judging, "BOOT", "import sys; " + program)
    judge = judging.Judge(tmp_path, "{}", "[[], []]", 0.0)
    if now < judging.LIMIT_S:
        judge.wait(60)
    else:
        assert judge.done(now - 1) is None
    assert said in judge.done(now)["error"]
