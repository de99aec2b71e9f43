"""Tracebacks of a target's errors: nothing of ours at their top, in the middle (a rehearsal) or in what caused them."""

from __future__ import annotations

from traceback import TracebackException

import pytest

from auditor.capture import tracebacks

OURS = tracebacks.OWN + "capture/ours.py"


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
    told = "".join(tracebacks.without_own(whole).format())
    assert "ours.py" not in told and "in fails" in told and "KeyError: 'theirs'" in told
    assert ("direct cause" in told) is (function is fails_again)


def test_an_error_of_our_own_stays_whole():
    with pytest.raises(TypeError) as raised:
        call(None)
    trace = raised.value.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    whole = TracebackException.from_exception(raised.value.with_traceback(trace))
    assert "ours.py" in "".join(tracebacks.without_own(whole).format())
