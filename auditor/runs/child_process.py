"""The parent's side of the process seam: starts the recording child, shows progress, and seals the
recording however it ended.

No torch here. The target may raise, be killed, hang, call ``os._exit`` or break the interpreter:
what its probes wrote by then is on disk, and the manifest is completed from outside.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from auditor import null_device, redaction
from auditor.errors import AuditProblem, TargetProblem
from auditor.recordings.folder import Recording
from auditor.runs import fork_server
from auditor.runs.finalize import Known, add_warning, clear, counted, seal, shortened
from auditor.runs.leftover_processes import Keeper
from auditor.runs.plan import Plan, Trial
from auditor.runs.progress import Pace, Progress, stage
from auditor.runs.project_copy import NoCopy, sheltered

BOOT = "import sys; sys.path[:1] = [sys.argv[1]]; from auditor.capture.child import main; main()"
GRACE_S = 10.0
"""How long a child that was asked to stop may take to write what it has."""

EXIT_GRACE_S = 10.0
"""How long a finished child may take to leave (threads, atexit handlers) before it is ended."""

OUTPUT_LIMIT = 1 << 20
"""Bytes of the target's own output that are kept (the last ones)."""

LINE_LIMIT = 1 << 16
"""Bytes of one line that are read at once."""


def record(
    plan: Plan,
    deadline: float | None,
    progress: Progress,
    echo: Callable[[str], None],
    begun: Child | None = None,
) -> Recording:
    """Run the plan in a child process, until ``deadline`` (``time.monotonic``), and return the
    sealed recording. ``begun`` is a process that was started for it before.

    A target that ends before all passes were run (a short script, a generator) is run once more
    with passes that fit, one that failed under a mode of ours once more without it. Raises :class:`TargetProblem` when the target cannot be run at all; never
    raises for what the target does.
    """
    plan, recording = _blameless(
        plan, record_once(plan, deadline, progress, echo, begun), deadline, progress
    )
    if not recording.manifest.get("exhausted"):
        return recording
    total = sum(counted(recording.folder).values())
    if total < MINIMUM_STEPS:
        raise TargetProblem(
            f"{plan.target} ended after {total} step{'s' * (total != 1)}; an audit needs at least "
            f"{MINIMUM_STEPS}",
            "give it more data or more iterations",
        )
    clear(recording.folder)
    stage(progress, "again")
    try:
        recording = record_apart(plan.fitted(total), deadline, progress, echo)
    except NoCopy as why:
        fitted = plan.fitted(total)
        _, recording = _blameless(
            fitted, record_once(fitted, deadline, progress, echo), deadline, progress
        )
        add_warning(recording, f"{IN_PLACE}: {why.message}")
    add_warning(recording, shortened(recording, total))
    return recording


def _blameless(
    plan: Plan, recording: Recording, deadline: float | None, progress: Progress
) -> tuple[Plan, Recording]:
    """Run a target again that failed under modes of ours, without the probes that have them.

    Where it gets past the step in which it failed, these were to blame: that run is the one that
    counts, and what they would have seen is missing. Else the program fails on its own.
    """
    error = recording.manifest.get("error") or {}
    under = error.get("under")
    if not under:
        return plan, recording
    said = f"{error['type']}: {error['message']}".partition("\n")[0][:200]
    unwatched = replace(plan, without={**plan.without, **dict.fromkeys(under, said)})
    folder = Path(plan.folder) / UNWATCHED
    stage(progress, "unwatched")
    with suppress(AuditProblem):
        record_apart(replace(unwatched, folder=str(folder)), deadline, progress, lambda text: None)
    reached = sum(counted(folder).values()) if folder.exists() else 0
    if reached > sum(counted(recording.folder).values()):
        clear(recording.folder)
        shutil.copytree(folder, recording.folder, dirs_exist_ok=True)
        plan, recording = unwatched, Recording(recording.folder)
        add_warning(
            recording,
            f"the step failed ({said}) while single operators were watched ({', '.join(under)}), and "
            "did not fail without that: the target ran again, and the results of these watches are "
            "missing",
        )
    shutil.rmtree(folder, ignore_errors=True)
    return plan, recording


UNWATCHED = "unwatched"
"""Folder of the run without modes of ours, until it takes the place of the one that failed."""

MINIMUM_STEPS = 6

IN_PLACE = "the second run was made in the project's own folder, and wrote there a second time"


def record_once(
    plan: Plan,
    deadline: float | None,
    progress: Progress,
    echo: Callable[[str], None],
    begun: Child | None = None,
) -> Recording:
    """One child process, one recording, as the plan says."""
    child = begun or Child(plan, progress, echo)
    ended = child.wait(deadline)
    if ended == fork_server.CHANGED and isinstance(child.process, fork_server.Forked):
        clear(Path(plan.folder))
        child = Child(plan, progress, echo, cold=True)
        ended = child.wait(deadline)
    return seal(plan, ended, child)


def record_apart(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    """As :func:`record_once`, in a copy of the working directory: a target that ran there before
    writes nothing a second time.

    Raises :class:`NoCopy` if none can be made. A plan that runs in a copy already is left there.
    """
    with sheltered(plan) as apart:
        recording = record_once(apart, deadline, progress, echo)
    return _blameless(plan, recording, deadline, progress)[1]


def _surroundings(plan: Plan) -> dict[str, str] | None:
    """The child's environment; None: ours."""
    trial = plan.purpose_as(Trial) is not None
    if not trial and plan.variables is None and not plan.rehearses:
        return None
    found = {**null_device.without(os.environ), **(plan.variables or {})}
    return {**found, "PYTHONHASHSEED": "0"} if trial else found


class Child(Known):
    """The child process and the threads that read its output and its progress."""

    def __init__(
        self, plan: Plan, progress: Progress, echo: Callable[[str], None], *, cold: bool = False
    ) -> None:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._pace = Pace(progress)
        self._echo = echo
        self._output: deque[bytes] = deque()
        self._kept = 0
        self._written: float | None = None
        self._began = time.monotonic()
        self._asked = False
        reading, writing = os.pipe()
        shown, _, _ = redaction.redacted_arguments(plan.args)
        self.process = self._start(
            plan, replace(plan, progress_fd=writing, shown_args=shown).to_json(), writing, cold
        )
        os.close(writing)
        self._keeper = Keeper(self.process.pid)
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_progress, args=(reading,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _start(
        plan: Plan, words: str, writing: int, cold: bool
    ) -> subprocess.Popen[bytes] | fork_server.Forked:
        surroundings = _surroundings(plan)
        folder = plan.copied.folder if plan.copied is not None else None
        alone = plan.rank is None and plan.device != "null"
        if alone and not cold:
            cwd = folder or os.getcwd()
            if not fork_server.sets_decisive(plan.target, cwd):
                there = dict(os.environ if surroundings is None else surroundings)
                arguments = (fork_server.ROOT, words)
                forked = fork_server.forked(arguments, there, cwd, writing)
                if forked is not None:
                    return forked
        return subprocess.Popen(
            [sys.executable, "-c", BOOT, fork_server.ROOT, words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            env=surroundings,
            start_new_session=True,
            cwd=folder,
        )

    def wait(self, deadline: float | None) -> str | int:
        """The exit code, or ``timeout`` or ``interrupted`` (the child was made to end)."""
        try:
            ended: str | int = self._wait_finished(deadline)
        except KeyboardInterrupt:
            self.end(signal.SIGINT)
            ended = "interrupted"
        except subprocess.TimeoutExpired:
            self.ask_for_stacks()
            self.end(signal.SIGINT)
            ended = "timeout"
        finally:
            self.leave()
        return ended

    def _wait_finished(self, deadline: float | None) -> int:
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                code = self.poll()
                return (
                    code
                    if code is not None
                    else self.process.wait(min(1.0, left) if left is not None else 1.0)
                )
            except subprocess.TimeoutExpired:
                if left == 0.0:
                    raise

    def poll(self) -> int | None:
        """The exit code, None while it runs; 0 if it wrote all and had to be made to leave."""
        code = self.process.poll()
        if (
            code is None
            and self._written is not None
            and time.monotonic() > self._written + EXIT_GRACE_S
        ):
            self.process.kill()
            self.process.wait()
            return 0
        return code

    def ask_for_stacks(self) -> None:
        """Ask once where every thread is, before a target that hangs is ended."""
        if hasattr(signal, "SIGUSR1") and self.process.poll() is None and not self._asked:
            self._asked = True
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.3)

    def end(self, how: signal.Signals) -> None:
        """Ask the process to end, once more if it takes steps; make it after :data:`GRACE_S`."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(how)
        steps, until = self._pace.steps, time.monotonic() + GRACE_S
        try:
            while time.monotonic() < until:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(1.0)
                    return
                if self._pace.steps > steps:  # an import or the target itself dropped it
                    self.process.send_signal(how)
                    steps = self._pace.steps
        except KeyboardInterrupt:
            pass
        self.ask_for_stacks()
        self.process.kill()
        self.process.wait()

    def leave(self) -> None:
        """Loader workers and other children do not outlive it; then read what it had printed."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._keeper.release()
        self._threads[0].join(timeout=2.0)
        # what it said last; a process that stays may hold the pipe for ever
        self._threads[1].join(timeout=0.2)

    def _read_output(self) -> None:
        """Keep and show the target's last output; a terminal that is gone must not hold it up."""
        assert self.process.stdout is not None
        with self.process.stdout as output:
            while line := output.readline(LINE_LIMIT):
                self._output.append(line)
                self._kept += len(line)
                while self._kept > OUTPUT_LIMIT and len(self._output) > 1:
                    self._kept -= len(self._output.popleft())
                with suppress(Exception):
                    self._echo(line.decode("utf-8", "replace"))

    def _read_progress(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as pipe:
            while line := pipe.readline(LINE_LIMIT):
                # a display that is gone; words that are not the recorder's
                with suppress(Exception):
                    text = line.decode()
                    if text.startswith("! "):
                        self.unwritten = text[2:].strip()
                    elif text.startswith("."):
                        self._written = time.monotonic()
                    else:
                        self._pace.read(text)

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._began

    @property
    def output(self) -> bytes:
        """The last part of what the target printed."""
        return b"".join(self._output)[-OUTPUT_LIMIT:]
