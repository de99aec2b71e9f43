"""A watched run: no bit differs, all is put back between looks, findings are told on the way."""

import os
import threading

import pytest
import torch
from auditor.reports import as_json

import auditor
from auditor.capture import here
from auditor.errors import AuditProblem
from auditor.extensions.longrun import judging, run
from auditor.extensions.longrun.run import NextBackward
from tests.api.test_python import hooks, training


def looks(folder):
    return sorted((folder / "out" / "looks").iterdir())


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
    monkeypatch.setattr(run, "Judge", Judged)


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

    first, *_ = looks(tmp_path)
    assert first.name.endswith("step20") and seen.report is not None and seen.report.is_file()
    report = as_json.read(seen.report.with_name("report.json"))
    assert report.run.in_process and [each.code for each in report.findings] == ["GRAPH001"]
    assert any("a look at a long run: every 20 steps" in each for each in report.warnings)
    (told,) = (each for each in caplog.records if "GRAPH001" in each.message)
    assert told.name == "auditor" and told.message.startswith("tests/")
    assert (seen.report.parent / judging.LOG).read_text() == ""


def finding(us, size=None):
    words = {"code": "SYNC001", "site": "train.py:3", "message": "waits"}
    return {"key": "k", "us": us, "bytes": size, **words}


@pytest.mark.parametrize(
    ("then", "again"),
    [
        (finding(100.0), False),
        (finding(199.0), False),
        (finding(200.0), True),
        (finding(None), False),
        (finding(100.0, 10), False),
    ],
)
def test_a_finding_is_told_once_and_again_when_its_price_has_doubled(tmp_path, caplog, then, again):
    numbers = []
    seen = watched(tmp_path, log_to=lambda *each: numbers.append(each))
    seen._announce([finding(100.0)], "report.html")
    seen._announce([then], "report.html")
    assert len(caplog.records) == 1 + again
    assert numbers == [("watch/findings", 1.0, 0)] * 2


def test_looks_add_no_more_than_their_budget(tmp_path, unjudged, monkeypatch):
    """The clock is the test's own: a look that added a second is followed by 50 s without one."""
    now = [0.0]
    monkeypatch.setattr(judging.Look, "added", lambda self, at: 1.0)
    _, step = training()
    seen = watched(tmp_path, every=10, budget=0.02)
    seen._clock = lambda: now[0]
    with seen:
        for number in range(200):
            now[0] += 0.5
            step()
    first, second = (int(each.name.rpartition("step")[2]) for each in looks(tmp_path))
    assert first == 10 and 92 <= second <= 102


# -- what must not happen --------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["step", "begin", "leave"])
def test_a_fault_of_ours_reaches_no_program(tmp_path, unjudged, caplog, monkeypatch, where):
    def broken(*_, **__):
        raise KeyError("ours")

    before = hooks()
    model, step = training()
    if where == "step":
        monkeypatch.setattr(run, "_profiles", broken)
    if where == "begin":
        monkeypatch.setattr(here.Here, "watch_told", broken)
    if where == "leave":
        monkeypatch.setattr(run, "Judge", broken)
    with watched(tmp_path, every=10):
        for _ in range(30):
            step()
        state = [each.clone() for each in model.parameters()]
    assert hooks() == before
    assert caplog.text.count("KeyError: 'ours'") == 1
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
    (only,) = looks(tmp_path)
    assert (only / "recording" / "manifest.json").is_file()


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
    first, *_ = looks(tmp_path)
    assert int(first.name.rpartition("step")[2]) >= 20


def test_another_audit_comes_first(tmp_path, unjudged, caplog):
    _, step = training()
    with watched(tmp_path, every=10), here.alone():
        for _ in range(15):
            step()
    assert "another audit is going on" in caplog.text
    assert looks(tmp_path) == []


def test_steps_in_another_thread_are_counted_and_not_looked_at(tmp_path, unjudged, caplog):
    _, step = training()
    with watched(tmp_path, every=10) as seen:
        thread = threading.Thread(target=lambda: [step() for _ in range(15)])
        thread.start()
        thread.join()
        assert seen.steps == 15
        step()
        assert seen.steps == 15, "one loop is watched"
    assert "main thread" in caplog.text


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
                seen.close()
                code = 0 if seen.steps == 9 else 2
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        assert seen.steps == 9
    assert looks(tmp_path) == []


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
    assert (tmp_path / "out" / "rank1" / "looks").is_dir()


def test_a_run_can_be_watched_again_and_is_not_watched_twice(tmp_path, caplog):
    before = hooks()
    seen = watched(tmp_path)
    seen.start()
    once = hooks()
    seen.start()
    assert hooks() == once
    with watched(tmp_path):
        assert hooks() == once
    assert ["not watched: another process is watching into" in m for m in caplog.messages] == [True]
    seen.close()
    seen.close()
    with watched(tmp_path):
        pass
    assert hooks() == before


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
