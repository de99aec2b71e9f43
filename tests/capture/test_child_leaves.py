"""A run in a copy of the project ends with its exit handlers, and takes nothing apart after them."""

import subprocess
import sys
import textwrap

import pytest

SOURCE = """
    import atexit, sys, threading, time
    from auditor.capture.process import leave_at_once

    class Held:
        def __del__(self):
            print("taken apart")

    held = Held()
    held.itself = held
    atexit.register(leave_at_once, lambda: {finished})
    atexit.register(print, "handler")
    threading.Thread(target=lambda: (time.sleep(0.2), print("thread"))).start()
    sys.exit({code})
"""


@pytest.mark.parametrize(
    ("finished", "code", "said"),
    [(True, 0, ["thread", "handler"]), (False, 3, ["thread", "handler", "taken apart"])],
)
def test_threads_and_handlers_come_first(finished, code, said):
    source = textwrap.dedent(SOURCE).format(finished=finished, code=code)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout.splitlines()) == (code, said)
