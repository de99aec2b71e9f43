"""The probe of calls that wait for storage: times and stacks, and everything put back."""

import os

from auditor.capture.probes.step.torch_warnings import StorageSyncsProbe
from tests.capture.drive import Drive, line_of, load

SOURCE = """
import os, tempfile, threading
from os import fsync

file = tempfile.TemporaryFile("w")

def write():
    os.fsync(file.fileno())                      # dotted

def step():
    write()                                      # calls
    for _ in range(3):
        fsync(file)                              # imported
"""


def test_aliases_count_and_are_put_back(tmp_path):
    user, before = load(tmp_path, SOURCE), os.fsync
    with Drive(tmp_path, StorageSyncsProbe) as drive:
        drive.run("quiet", user.step, steps=1)
        rows = {row["at_line"]: row for row in drive.rows("synced")}
    assert os.fsync is user.fsync is before
    dotted, imported = rows[line_of(user, "dotted")], rows[line_of(user, "imported")]
    assert (dotted["name"], dotted["n"], imported["n"]) == ("os.fsync", 1, 3)
    assert len(dotted["stack"]) == len(imported["stack"]) + 1
