"""The probe of calls that wait for storage: times and stacks, and everything put back."""

from __future__ import annotations

import os
import threading

import pytest

from auditor.capture.probes.step.storage_syncs import StorageSyncsProbe
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

def threaded():
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

def broken():
    os.fsync(99999)
"""


def test_other_threads_do_not_hold_the_step(tmp_path):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, StorageSyncsProbe) as drive:
        drive.run("quiet", user.threaded, steps=2)
        assert drive.rows("synced") == []


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_put_back(tmp_path, fails):
    user, before = load(tmp_path, SOURCE), (os.fsync, threading.active_count())
    with Drive(tmp_path, StorageSyncsProbe) as drive:
        if fails:
            with pytest.raises(OSError, match="Bad file descriptor"):
                drive.run("quiet", user.broken, steps=1)
        else:
            drive.run("quiet", user.step, steps=1)
    assert (os.fsync, threading.active_count()) == before
    assert user.fsync is os.fsync


WRITER = """
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter("FOLDER/log")

def step():
    writer.add_scalar("loss", 1.0, 0)
    writer.flush()                               # flushes
"""


def test_the_flush_of_tensorboards_writer_counts(tmp_path):
    pytest.importorskip("tensorboard")
    user = load(tmp_path, WRITER.replace("FOLDER", str(tmp_path)))
    with Drive(tmp_path, StorageSyncsProbe) as drive:
        drive.run("quiet", user.step, steps=2)
        rows = drive.rows("synced")
    user.writer.close()
    assert [(row["at_line"], row["name"], row["n"]) for row in rows] == [
        (line_of(user, "flushes"), "SummaryWriter.flush", 1)
    ] * 2
