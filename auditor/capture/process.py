"""The recording child's process: what is set before torch is imported and the target begins."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import random
import signal
import sys
from collections.abc import Callable, Iterable
from os import getpid, write  # ours also where a target puts its own in os
from pathlib import Path
from time import monotonic

from auditor.capture.instruments.import_hook import AfterImport
from auditor.capture.instruments.torch_private import late_compiler
from auditor.capture.probes.reproduce.sources import SOURCES
from auditor.capture.target.write_guard import enter
from auditor.recordings.writer import identity_of
from auditor.runs.launchers import told_by_torchrun
from auditor.runs.plan import Plan, Trial
from auditor.runs.repeat import Repeat

FORKED = False
"""Whether this process is a fork of one that has imported torch and its compiler."""

STACKS = "stacks.txt"
"""File in the recording's folder that the stacks of all threads are written to on SIGUSR1."""


def set_up(plan: Plan) -> None:
    """Prepare this process for the plan, before anything imports torch."""
    # a killed parent cannot end its child; the kernel does (prctl(2), PR_SET_PDEATHSIG)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL))
    # our parent asks us to end by it; begun with `&`, we would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream at this point
    # read when torch is imported: keeps Kineto's own lines out
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if plan.rank is not None:
        if plan.rendezvous:  # else a launcher has told this process who it is
            size = plan.world_size
            os.environ.update(told_by_torchrun(plan.rank, size, size, plan.rendezvous))
        # as torchrun does: the processes share the processors
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if plan.device == "cpu" or plan.rehearses:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if plan.rehearses and not FORKED:  # its times are not shown to anybody
        late_compiler.put_off()
    if plan.copied is not None:
        enter(plan.copied, plan.folder)
    trial = plan.purpose_as(Trial)
    if trial is not None:
        prepare(trial)
    repeat = plan.purpose_as(Repeat)
    if repeat is not None:
        SOURCES.begin(repeat)
    if hasattr(signal, "SIGUSR1"):
        with contextlib.suppress(OSError):  # the folder cannot be written: the recorder says so
            stacks = open(Path(plan.folder) / STACKS, "w")  # noqa: SIM115 - stays open for the signal
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def leave_at_once(finished: Callable[[], bool]) -> None:
    """End this process, if its run is ``finished``, without taking apart what its modules hold:
    with torch that takes 1.3 s of CPU. What objects of the program would still write goes to a copy
    that is thrown away.
    """
    if finished():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # the program's own by now
                stream.flush()
        os._exit(0)


# -- trial setup -----------------------------------------------------------------------------------
# What a trial of ``audit verify`` sets up before the target is imported: the seeds.


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's when they are imported."""
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()


# -- progress pipe ---------------------------------------------------------------------------------
# What the recording child tells its parent while it runs.


class ProgressPipe:
    """Tells the parent about passes and steps, at most twenty times a second.

    Lines: ``pass done steps``; ``= pass:steps pass:steps ...`` for all passes of the run when that
    is known or changes; ``! sentence`` when the recording can be written no more; ``.`` when all is
    written. A pipe that the target closed is not written to: its number may belong to a file of the
    target's by then. Nor is it by a process that the target forked.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._identity = None if fd is None else identity_of(fd)
        self._process = getpid()
        self._last = 0.0

    def __call__(self, name: str, done: int, steps: int) -> None:
        """Say that ``done`` of ``steps`` steps of a pass are complete."""
        now = monotonic()
        if self._fd is None or (0 < done < steps and now - self._last < 0.05):
            return
        self._last = now
        self._write(f"{name} {done} {steps}")

    def outline(self, passes: Iterable[tuple[str, int]]) -> None:
        """Say which passes the run has, done and to come, and how many steps each."""
        self._write("= " + " ".join(f"{name}:{steps}" for name, steps in passes))

    def lost(self, sentence: str) -> None:
        """Say that the recording can be written no more."""
        self._write("! " + " ".join(sentence.split()))

    def done(self) -> None:
        """Say that all is written; what follows is the target's own."""
        self._write(".")

    def _write(self, line: str) -> None:
        if self._fd is None:
            return
        if getpid() != self._process or identity_of(self._fd) != self._identity:
            self._fd = None
            return
        try:
            write(self._fd, f"{line}\n".encode())
        except OSError:
            self._fd = None
