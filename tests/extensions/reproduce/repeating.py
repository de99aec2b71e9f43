"""Runs of programs in forks of this process, through the session and the probe of the recording
child: a fork takes a tenth of a second, where a process imports torch for seconds.
"""

import os
import random
import time

import numpy as np
import torch

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.registry import select
from auditor.capture.probes.reproduce.sources import SOURCES
from auditor.capture.session import Session
from auditor.extensions.reproduce.comparing import Log
from auditor.extensions.reproduce.runs import PARTS, Order, Runs
from auditor.model.devices import CPU
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.runs.plan import Plan
from auditor.runs.project_copy import NOTHING

STEPS = 3

torch.optim.SGD([torch.zeros(1)], lr=1.0)  # imports torch's compiler, once for all forks


class InForks(Runs):
    """Runs in forks of this process. Generators begin in states of the system's, as in new
    processes; the hash seed is this process's.
    """

    def __init__(self, make, folder, before=None):
        super().__init__(
            Order("test:step", (), STEPS, "cpu", against="v1" if before else ""),
            lambda text: None,
            lambda name, done, total: None,
        )
        self._make = make
        self._before = before or make
        self._folder = folder

    def _run(self, repeat, hash_seed, files=NOTHING):
        folder = self._folder / str(self._made)
        self._made += 1
        child = os.fork()
        if child == 0:
            status = 1
            try:
                make = self._before if files else self._make
                _record(folder, make, repeat, self._made)
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        recording = Recording(folder / "recording")
        self._require(recording)
        return Log(recording)


def _record(folder, make, repeat, run):
    os.makedirs(folder)
    os.chdir(folder)
    torch.seed()
    random.seed()
    np.random.seed()  # noqa: NPY002
    time.sleep(0.001 * run)
    SOURCES.begin(repeat)
    writer = RecordingWriter(folder / "recording")
    frames = Frames(writer)
    warnings: dict[str, None] = {}
    plan = Plan("test:step", (), STEPS, 0, "cpu", str(writer.folder), PARTS, purpose=repeat)
    context = Context(
        writer, frames, device=CPU, plan=plan, warn=lambda text: warnings.update({text: None})
    )
    session = Session(context, select(PARTS, context), lambda name, done, total: None)
    session.install()
    step = make()
    while not session.done:
        session.begin()
        step()
        session.end()
    session.uninstall()
    writer.close()
    file = make.__code__.co_filename
    write_manifest(
        writer.folder,
        {
            "schema": SCHEMA,
            "target": "test:step",
            "cwd": os.path.dirname(file),
            "device": "cpu",
            "outcome": "completed",
            "passes": [{"name": each.name, "steps": each.done} for each in session.passes],
            "probes": session.failed,
            "warnings": list(warnings),
            "sources": store_sources(writer.folder, os.path.dirname(file), iter([file])),
        },
    )


def compared(make, folder):
    """What two runs of the program show."""
    return InForks(make, folder).outcome()
