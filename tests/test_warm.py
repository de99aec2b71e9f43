"""A fork of the server (tests/warm.py) is, for what it can see, a process that was started."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from tests.warm import run_python

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or torch.version.cuda is not None, reason="forks, and /proc"
)
ROOT = Path(__file__).resolve().parent.parent
ENV = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "A_WORD": "x y"}

SEEN = """
import atexit, json, os, signal, sys
signals = {each.name: str(signal.getsignal(each)) for each in signal.Signals
           if each.name in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGPIPE")}
files = [name for name in os.listdir("/proc/self/fd") if int(name) < 100]
atexit.register(print, "the end", file=sys.stderr)
print(json.dumps([sys.argv, os.getcwd(), os.environ["A_WORD"], sys.path[1:], __name__, signals,
                  sys.stdin.read(), len(files)]))
sys.exit(int(sys.argv[1]))
"""


def both(code, *args, cwd):
    return [
        run_python(code, args, cwd=cwd, timeout=60, env=ENV, cold=cold) for cold in (False, True)
    ]


def test_a_process_sees_what_one_that_was_started_sees(tmp_path):
    forked, started = both(SEEN, "3", "é", cwd=tmp_path)
    assert (forked.returncode, forked.stderr) == (started.returncode, started.stderr)
    assert forked.returncode == 3
    assert json.loads(forked.stdout) == json.loads(started.stdout)


def test_an_error_and_a_signal_end_it_the_same_way(tmp_path):
    for code in ("1 / 0", "import os; os.kill(os.getpid(), 9)", "import os; os._exit(4)"):
        forked, started = both(code, cwd=tmp_path)
        assert forked.returncode == started.returncode
        assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_other_variables_of_python_are_a_start_of_python(tmp_path):
    env = {**ENV, "PYTHONHASHSEED": "7"}
    code = "import sys; print('torch' in sys.modules)"
    done = run_python(code, (), cwd=tmp_path, timeout=60, env=env)
    assert done.stdout == "False\n"
    assert run_python(code, (), cwd=tmp_path, timeout=60, env=ENV).stdout == "True\n"
