"""A recording child that is a fork is, for all that the program can see, a process that was started."""

import json
import os
import sys

import pytest

from auditor.runs import fork_server
from auditor.runs.child_process import Child, record_once
from auditor.runs.plan import Plan
from auditor.runs.progress import silent

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks")

SEEN = """
import json, os, random, signal, sys, threading
hidden = [name for name in sys.modules if name.partition(".")[0] == "torch"]
from torch.nn import Linear
import numpy, torch
signals = {each.name: str(signal.getsignal(each)) for each in signal.Signals
           if each.name in ("SIGINT", "SIGTERM", "SIGPIPE", "SIGCHLD")}
files = sorted(os.readlink(f"/proc/self/fd/{n}").partition(":")[0] for n in os.listdir("/proc/self/fd")
               if int(n) < 3)
seen = [sys.argv, os.getcwd(), os.environ.get("A_WORD"), hidden, signals, files, sys.stdin.read(),
        os.getpid() == os.getsid(0) == os.getpgid(0), threading.active_count(), __name__,
        sys.path[0], torch.nn.Linear is Linear, torch.__spec__.name, torch.get_num_threads()]
print(json.dumps([seen, os.getppid(), numpy.random.random(), random.random()]))
model = Linear(2, 2)
def step():
    model(torch.ones(1, 2)).sum().backward()
"""
SETS = """
import os
os.environ[{name}] = "3"
import torch
print(torch.get_num_threads())
def step():
    torch.ones(2)
"""


def printed(folder, source, *, cold=False):
    (folder / "seen.py").write_text(source)
    plan = Plan(
        "seen:step", ("--a", "é"), 1, 0, "cpu", str(folder / f"out-{os.urandom(4).hex()}"), ()
    )
    child = Child(plan, silent, lambda text: None, cold=cold)
    assert isinstance(child.process, fork_server.Forked) == (not cold)
    ended = child.wait(None)
    if ended == fork_server.CHANGED:
        return "changed"
    assert ended == 0
    return child.output.decode()


@pytest.fixture(autouse=True)
def _there(tmp_path, monkeypatch):
    monkeypatch.setattr(fork_server, "MOST_SERVERS", 100)  # other tests may have begun some
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_WORD", "x y")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_a_fork_sees_what_a_start_sees(tmp_path):
    forked, again, started = (
        json.loads(printed(tmp_path, SEEN, cold=cold)) for cold in (False, False, True)
    )
    assert forked[0] == again[0] == started[0]
    assert {forked[1], started[1]} == {os.getpid()}
    assert len({each[at] for each in (forked, again, started) for at in (2, 3)}) == 6


def test_a_variable_that_torch_reads_at_its_import_asks_for_a_start(tmp_path):
    assert printed(tmp_path, SETS.format(name="'O' + 'MP_NUM_THREADS'")) == "changed"
    plan = Plan("seen:step", (), 6, 0, "cpu", str(tmp_path / "out"), ())
    recording = record_once(plan, None, silent, lambda text: None)
    assert recording.outcome == "completed"
    assert printed(tmp_path, SETS.format(name="'CUDA_VISIBLE_DEVICES'")) == "1\n"
    assert not fork_server.sets_decisive("seen:step", str(tmp_path))
    (tmp_path / "seen.py").write_text(SETS.format(name="'OMP_NUM_THREADS'"))
    assert fork_server.sets_decisive("seen:step", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"), [(fork_server.COLD, "1"), ("PYTHONPATH", "src"), ("PYTHONPATH", "/a:")]
)
def test_what_is_started_all_the_same(name, value, tmp_path, monkeypatch):
    monkeypatch.setenv(name, value)
    assert fork_server.forked((), dict(os.environ), str(tmp_path), 0) is None


def test_a_folder_that_is_not_there_is_a_start_which_says_so(tmp_path):
    reading, writing = os.pipe()
    words, there = (fork_server.ROOT, "{}"), dict(os.environ)
    assert fork_server.forked(words, there, str(tmp_path / "none"), writing) is None
    assert fork_server.forked(words, there, str(tmp_path), writing) is not None
    os.close(reading)
    os.close(writing)


def test_a_server_that_has_ended_is_replaced(tmp_path):
    words, there = (fork_server.ROOT, "{}"), dict(os.environ)
    reading, writing = os.pipe()
    assert fork_server.forked(words, there, str(tmp_path), writing) is not None
    for server in filter(None, fork_server.SERVERS.values()):
        server.process.kill()
        server.process.wait()
    assert fork_server.forked(words, there, str(tmp_path), writing) is not None
    os.close(reading)
    os.close(writing)


def test_a_server_that_cannot_fork_is_asked_once(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_A_VARIABLE", "of its own")
    monkeypatch.setattr(fork_server, "SERVE", "import os; os._exit(1)")
    monkeypatch.setattr(fork_server, "SERVERS", {})
    reading, writing = os.pipe()
    for _ in range(2):
        assert fork_server.forked((), dict(os.environ), str(tmp_path), writing) is None
    assert list(fork_server.SERVERS.values()) == [None]
    os.close(reading)
    os.close(writing)
