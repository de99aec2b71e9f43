"""What all probes share that count calls: which count, and that everything is put back."""

import threading
from typing import Any

import pytest

from auditor.capture.probes.tally import Tally
from auditor.recordings.schema.sync import CallRow
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import threading

class Device:
    def wait(self, us=1):
        if us < 0:
            raise ValueError(us)
        return us

def free():
    device.wait()                                # inside
    return 7

device = Device()
taken = free

def step():
    assert free() == 7                           # free
    assert taken() == 7                          # taken
    for _ in range(3):
        assert device.wait(us=5) == 5            # waits
    device.wait(0)                               # idle

def elsewhere():
    thread = threading.Thread(target=free)
    thread.start()
    thread.join()

def broken():
    device.wait(-1)                              # broken
"""


@pytest.fixture
def user(tmp_path):
    return load(tmp_path, SOURCE)


@pytest.fixture
def probe(user):
    class Counts(Tally):
        row = CallRow

        def watch(self) -> None:
            self._patches.code(user.free, self.hook(name="free"))
            wait = self.around(
                user.Device.wait, lambda device, us=1: {"name": "wait"} if us else None
            )
            self._patches.attribute(user.Device, "wait", wait)

    return Counts


def test_the_outermost_calls_count_by_line(tmp_path, user, probe):
    with Drive(tmp_path, probe) as drive:
        drive.run("quiet", user.step, steps=2)
        rows = drive.rows("calls")
    once = [
        (line_of(user, "free"), "free", 1),
        (line_of(user, "taken"), "free", 1),
        (line_of(user, "waits"), "wait", 3),
    ]
    assert [(row["at_line"], row["name"], row["n"]) for row in rows] == once * 2
    assert all(row["us"] >= 0.0 for row in rows)


def test_other_threads_and_the_time_between_steps_do_not(tmp_path, user, probe):
    with Drive(tmp_path, probe) as drive:
        with drive.running("quiet"):
            user.free()
            drive.step(user.elsewhere)
            user.free()
        assert drive.rows("calls") == []


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(tmp_path, user, probe, *, fails):
    before = user.free.__code__, user.Device.wait, threading.active_count()
    with Drive(tmp_path, probe) as drive:
        if fails:
            with pytest.raises(ValueError, match="-1"):
                drive.run("quiet", user.broken, steps=1)
        else:
            drive.run("quiet", user.step, steps=1)
    assert (user.free.__code__, user.Device.wait, threading.active_count()) == before


def test_a_call_that_raises_counts(tmp_path, user, probe):
    def caught() -> None:
        with pytest.raises(ValueError, match="-1"):
            user.broken()

    with Drive(tmp_path, probe) as drive:
        drive.run("quiet", caught, steps=1)
        (row,) = drive.rows("calls")
    assert (row["at_line"], row["n"]) == (line_of(user, "broken"), 1)


def test_our_own_error_costs_a_row_and_not_the_call(tmp_path, user):
    def fails(*_: Any) -> dict[str, Any]:
        raise KeyError("ours")

    class Fails(Tally):
        row = CallRow

        def watch(self) -> None:
            self._patches.code(user.free, self.hook(fails))

    with Drive(tmp_path, Fails) as drive:
        drive.run("quiet", user.step, steps=1)
        assert drive.rows("calls") == []
        assert len(drive.warnings) == 1 and "did not see everything" in drive.warnings[0]
