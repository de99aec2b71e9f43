"""Several threads that read a class for the first time."""

import subprocess
import sys

from tests.conftest import ROOT
from tests.reports.viewing import write_run

READERS = """
import sys, threading
from pathlib import Path
from reports import as_json

data = Path(sys.argv[1]).read_bytes()
sys.setswitchinterval(1e-6)
gate = threading.Barrier(8)

def read():
    gate.wait()
    read.done.append(as_json.load(data).schema)

read.done = []
threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(read.done))
"""


def test_a_report_is_read_by_eight_threads_at_once(tmp_path):
    """Without the lock six of seven such processes ended by SIGSEGV."""
    write_run(tmp_path / "run")
    for _ in range(4):
        done = subprocess.run(
            [sys.executable, "-c", READERS, str(tmp_path / "run" / "report.json")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "8"), done.stderr
