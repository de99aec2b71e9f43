import warnings

import pytest
import torch

from auditor.capture.probes.numerics.debug_modes import DebugModesProbe
from tests.capture.drive import Drive, line_of, load

HEAD = """
import warnings, torch
from torch.autograd import detect_anomaly, set_detect_anomaly
warnings.filterwarnings("ignore", "Anomaly Detection")
weight = torch.ones(3, requires_grad=True)
def backward(): (weight * 2).sum().backward()
"""


@pytest.fixture(autouse=True)
def anomaly_off():
    yield
    torch.autograd.set_detect_anomaly(False)


def anomaly(drive: Drive) -> list[tuple[int | None, int]]:
    return [(row["at_line"], row["n"]) for row in drive.rows("modes")]


def program(tmp_path, source):
    return load(tmp_path, HEAD.lstrip("\n") + source)


def test_switched_on_at_import_and_for_good(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        user = program(
            tmp_path,
            "set_detect_anomaly(mode=True)  # on\ndef step():\n    backward(); backward()\n",
        )
        drive.run("quiet", user.step, steps=2)
        assert anomaly(drive) == [(line_of(user, "on"), 2)] * 2
        assert drive.probes[0].anomaly_seen


def test_the_compilers_own_is_not_the_users(tmp_path):
    source = """
net = torch.compile(torch.nn.Linear(3, 3), backend="aot_eager")
def step():
    net(torch.ones(2, 3)).sum().backward()
"""
    with Drive(tmp_path, DebugModesProbe) as drive:
        drive.run("warmup", program(tmp_path, source).step, steps=2)
        assert anomaly(drive) == [] and not drive.probes[0].anomaly_seen


def test_the_warning_of_detect_anomaly_still_names_the_users_line(tmp_path):
    with Drive(tmp_path, DebugModesProbe):
        user = program(tmp_path, "def use():\n    with detect_anomaly():  # here\n        pass\n")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            user.use()
    assert (seen[0].filename, seen[0].lineno) == (user.__file__, line_of(user, "here"))


SEES = """
states = []
def step():
    states.append((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))
    node = (weight * 2).sum().grad_fn
    traced.append("traceback_" in node.metadata)
    with detect_anomaly(check_nan=False):
        states.append((torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()))
        traced.append("traceback_" in (weight * 2).grad_fn.metadata)
    backward()
traced = []
"""


def test_held_off_the_program_sees_what_it_asked_for_and_the_engine_nothing(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        user = program(tmp_path, "set_detect_anomaly(True)\n" + SEES)
        drive.run("anomaly_off", user.step, steps=1)
        assert user.states == [(True, True), (True, False)] and user.traced == [False, False]
        assert anomaly(drive) == []
        assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
        drive.run("loud", user.step, steps=1)
        assert user.traced[2:] == [True, True] and len(anomaly(drive)) == 1


def test_what_the_user_switches_while_held_off_is_true_afterwards(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        user = program(
            tmp_path,
            "def step():\n    set_detect_anomaly(True, check_nan=False)\n    raise KeyError\n",
        )
        with pytest.raises(KeyError):
            drive.run("anomaly_off", user.step)
        assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, False)


def test_our_own_profiler_is_not_the_users(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        modes = drive.probes[0]
        with drive.running("loud"), modes.own():
            with torch.profiler.profile():
                pass
            drive.step(lambda: None)
        assert not modes.user_profiler_seen


PROFILES = """
import torch.autograd.profiler
from torch.profiler import profile, schedule
def whole():
    with profile() as prof:  # whole
        backward()
def old():
    with torch.autograd.profiler.profile():  # old
        backward()
scheduled = profile(schedule=schedule(wait=1, warmup=1, active=1, repeat=1))
"""


def test_a_scheduled_profiler_is_told_when_its_trace_begins(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        user = program(tmp_path, PROFILES)
        told = []
        drive.probes[0].on_user_profiler = lambda: told.append(drive.context.step)
        with user.scheduled:
            assert not drive.probes[0].user_profiler_seen
            drive.run("quiet", user.scheduled.step, steps=4)
        assert told == [0]


def test_profilers_of_the_user_are_seen_where_they_start(tmp_path):
    with Drive(tmp_path, DebugModesProbe) as drive:
        user = program(tmp_path, PROFILES)
        told = []
        drive.probes[0].on_user_profiler = lambda: told.append(torch.autograd._profiler_enabled())
        drive.run("quiet", user.whole, steps=1)
        drive.run("loud", user.old, steps=1)
        assert told == [False, False] and drive.probes[0].user_profiler_seen  # told before it runs
