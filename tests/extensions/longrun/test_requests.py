"""How another process is asked for a look: whom one may ask, and what is told where one may not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.errors import AuditProblem
from auditor.extensions.longrun import requests
from auditor.extensions.longrun.requests import Door, Request, began, is_ours


@pytest.fixture
def room(tmp_path, monkeypatch):
    folder = tmp_path / "room"
    monkeypatch.setattr(requests, "room", lambda: folder)
    return folder


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def test_a_process_is_asked_and_answers(room):
    door = Door()
    assert door.open({"out": "here"}) == ""
    assert room.stat().st_mode & 0o777 == 0o700
    assert [each.stat().st_mode & 0o777 for each in room.iterdir()] == [0o600]
    assert not door.asked()
    request = Request(os.getpid())
    assert request.facts["out"] == "here" and request.alive and not request.pending
    request.send()
    assert request.pending and request.answer() is None
    assert door.asked() and not door.asked() and not request.pending
    door.answer(report="page", findings=2)
    assert request.answer() == {"report": "page", "findings": 2}
    request.send()
    assert request.answer() is None, "an answer to an earlier request is none to this one"
    door.close()
    door.close()
    with pytest.raises(AuditProblem, match="does not watch its training"):
        Request(os.getpid())


def test_a_process_that_is_gone_or_does_not_watch(room, sleeper):
    with pytest.raises(AuditProblem, match=f"process {sleeper.pid} does not watch its training"):
        Request(sleeper.pid)
    sleeper.kill()
    sleeper.wait()
    with pytest.raises(AuditProblem, match=f"no process {sleeper.pid} is running here"):
        Request(sleeper.pid)


def test_a_pid_that_is_used_again_is_another_process(room, sleeper):
    Door().open({})
    stale = room / f"{sleeper.pid}-12345.watched"
    stale.write_text(json.dumps({"pid": sleeper.pid, "out": "x"}))
    with pytest.raises(AuditProblem, match="does not watch"):
        Request(sleeper.pid)
    true = room / f"{sleeper.pid}-{began(sleeper.pid)}.watched"
    true.write_text(json.dumps({"pid": sleeper.pid, "out": "x"}))
    request = Request(sleeper.pid)
    assert request.alive
    sleeper.kill()
    sleeper.wait()
    assert not request.alive
    door = Door()
    door.open({})
    assert not stale.exists() and not true.exists(), "what a process left is swept by the next one"
    assert [each.suffix for each in room.iterdir()] == [".watched"]


def test_a_file_on_its_way_to_a_living_process_is_not_swept(room):
    Door().open({})
    fresh = room / f"{os.getpid()}-{began(os.getpid())}.look.new"
    fresh.write_text("{}")
    Door().open({})
    assert fresh.exists()


def test_somebody_elses_process(room, monkeypatch, sleeper):
    monkeypatch.setattr(requests, "_owner", lambda pid: os.geteuid() + 1)
    with pytest.raises(AuditProblem, match=f"process {sleeper.pid} belongs to another user"):
        Request(sleeper.pid)


@pytest.mark.parametrize("what", ["open to others", "a link", "somebody else's", "a file"])
def test_a_folder_that_is_not_the_users_alone_is_not_used(room, tmp_path, monkeypatch, what):
    if what == "a file":
        room.write_text("")
    elif what == "a link":
        (tmp_path / "theirs").mkdir(mode=0o700)
        room.symlink_to(tmp_path / "theirs")
    else:
        room.mkdir(mode=0o700)
        if what == "open to others":
            room.chmod(0o750)
        else:
            monkeypatch.setattr(requests, "_user", lambda: os.geteuid() + 1)
    assert not is_ours(room)
    door = Door()
    assert "audit attach cannot reach this process" in door.open({})
    assert not door.asked()
    door.answer(report="x")
    door.close()
    assert not list(room.iterdir() if room.is_dir() else [])


def test_the_folder_is_named_by_the_user_and_by_nothing_in_the_environment(monkeypatch):
    before = requests.room()
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nowhere")
    assert requests.room() == before and str(os.geteuid()) in before.name


@pytest.mark.parametrize("text", ["", "[]", "{", "null"])
def test_a_broken_file_is_no_answer(room, text):
    door = Door()
    door.open({})
    request = Request(os.getpid())
    (room / f"{os.getpid()}-{began(os.getpid())}.answer").write_text(text)
    assert request.answer() is None


# -- the command -----------------------------------------------------------------------------------


def asked(*words):
    return CliRunner().invoke(main, ["attach", *map(str, words)])


def test_the_command_waits_for_the_report(room):
    door = Door()
    door.open({"out": "here"})

    def answers():
        until = time.monotonic() + 60
        while not door.asked() and time.monotonic() < until:
            time.sleep(0.01)
        door.answer(report="looks/report.html", findings=1)

    thread = threading.Thread(target=answers)
    thread.start()
    done = asked(os.getpid(), "--timeout", 60)
    thread.join()
    assert done.exit_code == 0 and done.stdout == "looks/report.html\n"
    assert "1 finding" in done.stderr


def test_what_the_command_says_where_there_is_no_report(room):
    done = asked(os.getpid())
    assert done.exit_code == 2 and "does not watch its training" in done.stderr
    assert "auditor.watch(every=...)" in done.stderr
    door = Door()
    door.open({"out": "here"})
    done = asked(os.getpid(), "--timeout", 0.1)
    assert done.exit_code == 2 and "ended no step in 0.1 s" in done.stderr
    assert "here/looks" in done.stderr and door.asked(), "the request stands"
    done = asked("nobody")
    assert done.exit_code == 2
