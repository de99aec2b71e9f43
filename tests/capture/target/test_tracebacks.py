"""Tracebacks of a target's errors hold nothing of ours, nor do those that caused them."""

import multiprocessing
import os
import signal
from traceback import TracebackException
from types import SimpleNamespace

import pytest

from auditor.capture import child

OURS = child.OWN[0] + "capture/ours.py"


def call(function):
    """Calls it from a frame of the auditor's."""
    scope = {}
    exec(compile("def ours(function):\n    return function()", OURS, "exec"), scope)  # noqa: S102
    return scope["ours"](function)


def fails():
    raise KeyError("theirs")


def fails_again():
    try:
        call(fails)
    except KeyError as error:
        raise ValueError("later") from error


@pytest.mark.parametrize("function", [fails, fails_again])
def test_no_frame_of_ours_is_told(function):
    with pytest.raises((KeyError, ValueError)) as raised:
        call(lambda: call(function))
    whole = TracebackException.from_exception(raised.value)
    assert "ours.py" in "".join(whole.format())
    told = "".join(child.without_own(whole).format())
    assert "ours.py" not in told and "in fails" in told and "KeyError: 'theirs'" in told
    assert ("direct cause" in told) is (function is fails_again)


def test_an_error_of_our_own_stays_whole():
    with pytest.raises(TypeError) as raised:
        call(None)
    trace = raised.value.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    whole = TracebackException.from_exception(raised.value.with_traceback(trace))
    assert "ours.py" in "".join(child.without_own(whole).format())


# -- a loader's worker that is gone ----------------------------------------------------------------

LOADER_FILE = "/site-packages/torch/utils/data/dataloader.py"
"""A frame of this file holds the iterator, as torch's does where it reads from its workers."""

RESET = ConnectionResetError(104, "Connection reset by peer")


def loading(error, *workers):
    """The error as it comes out of a loader with these workers."""
    scope = {}
    exec(compile("def _try_get_data(self, error):\n    raise error", LOADER_FILE, "exec"), scope)  # noqa: S102
    with pytest.raises(type(error)) as raised:
        scope["_try_get_data"](SimpleNamespace(_workers=workers), error.with_traceback(None))
    return raised.value


def worker(code):
    process = multiprocessing.get_context("fork").Process(target=code)
    process.start()
    return process


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    "error", [RESET, EOFError(), RuntimeError("DataLoader worker (pid(s) 7) exited unexpectedly")]
)
def test_who_killed_a_worker_is_told(error):
    """Torch says that a connection was reset, where its worker is no zombie yet."""
    stays, dies = worker(signal.pause), worker(killed)
    if isinstance(error, RuntimeError):  # torch has seen its end
        dies.join()
    try:
        told = child.words(loading(error, stays, dies), lambda file: True)["message"]
    finally:
        stays.kill()
    assert str(error) in told and not told.startswith(";")
    assert told.endswith(
        f"a worker of the loader (process {dies.pid}) was ended by SIGKILL (the kernel's "
        "out-of-memory killer does this)"
    )
    assert str(stays.pid) not in told


def test_a_worker_that_leaves_is_told():
    leaves = worker(lambda: os._exit(3))
    leaves.join()
    assert (
        "was ended by itself, with exit code 3"
        in child.words(loading(RESET, leaves), lambda file: True)["message"]
    )


@pytest.mark.parametrize("workers", [(), (None,), (SimpleNamespace(pid=3),)])
def test_a_loader_of_another_kind_is_left_alone(workers):
    given = child.words(loading(ValueError("item 40"), *workers), lambda file: True)["message"]
    assert given == "item 40"


def test_what_torch_knows_is_not_told_twice():
    gone = worker(killed)
    gone.join()
    said = f"DataLoader worker (pid {gone.pid}) is killed by signal: Killed. "
    assert child.words(loading(RuntimeError(said), gone), lambda file: True)["message"] == said
