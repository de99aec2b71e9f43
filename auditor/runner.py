"""The parent's side of the process seam: starts the recording child, shows progress, and seals the recording however it ended.

No torch here. The target may raise, be killed, hang, call ``os._exit`` or break the interpreter: what its probes wrote by
then is on disk, and the manifest is completed from outside.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from auditor import redaction
from auditor.config_files import worth_keeping
from auditor.errors import AuditProblem, TargetProblem
from auditor.plan import Plan
from auditor.progress import Pace, Progress
from auditor.recording import SITES, Recording, Row, read_manifest, write_manifest
from auditor.recording_sources import SOURCES, masked_lines, store_sources

BOOT = "import sys; sys.path[:1] = [sys.argv[1]]; from auditor.capture.child import main; main()"
GRACE_S = 10.0
"""How long a child that was asked to stop may take to write what it has."""

EXIT_GRACE_S = 20.0
"""How long a finished child may take to leave (non-daemon threads, atexit handlers) before it is ended."""

OUTPUT_LIMIT = 1 << 20
"""Bytes of the target's own output that are kept (the last ones)."""

FOLLOWED = "alone"
"""How a process ended that was stopped because another rank had failed."""

PROFILER_NOISE = b"Memory block of unknown size was allocated before the profiling started"
"""A line that torch's CPU allocator prints because we profile: not the target's own words."""


def record(plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]) -> Recording:
    """Run the plan in a child process, until ``deadline`` (``time.monotonic``), and return the sealed recording.

    A target that ends before all passes were run (a short script, a generator) is run once more with passes that fit.
    Raises :class:`TargetProblem` when the target cannot be run at all; never raises for what the target does.
    """
    recording = record_once(plan, deadline, progress, echo)
    if not recording.manifest.get("exhausted"):
        return recording
    total = sum(counted(recording.folder).values())
    if total < MINIMUM_STEPS:
        raise TargetProblem(
            f"{plan.target} ended after {total} step{'s' * (total != 1)}; an audit needs at least {MINIMUM_STEPS}",
            "give it more data or more iterations",
        )
    clear(recording.folder)
    recording = record_once(plan.fitted(total), deadline, progress, echo)
    add_warning(recording, f"the target ends after {total} steps, so the passes were shortened to fit")
    return recording


MINIMUM_STEPS = 6


def record_once(plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]) -> Recording:
    """One child process, one recording, as the plan says."""
    child = Child(plan, progress, echo)
    ended = child.wait(deadline)
    return seal(plan, ended, child)


class Child:
    """The child process and the threads that read its output and its progress."""

    def __init__(self, plan: Plan, progress: Progress, echo: Callable[[str], None]) -> None:
        folder = Path(plan.folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._pace = Pace(progress)
        self._echo = echo
        self._output: deque[bytes] = deque()
        self._kept = 0
        reading, writing = os.pipe()
        shown, _, _ = redaction.redacted_arguments(plan.args)
        root = str(Path(__file__).resolve().parent.parent)
        command = [sys.executable, "-c", BOOT, root, replace(plan, progress_fd=writing, shown_args=shown).to_json()]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(writing,),
            env={**os.environ, "PYTHONHASHSEED": "0"} if plan.trial is not None else None,
            start_new_session=True,
            cwd=plan.copied.folder if plan.copied is not None else None,
        )
        os.close(writing)
        self._threads = [
            threading.Thread(target=self._read_output, daemon=True),
            threading.Thread(target=self._read_progress, args=(reading,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, deadline: float | None) -> str | int:
        """The exit code, or ``timeout`` or ``interrupted`` (after the child was asked, then made, to end)."""
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
            if left is not None and self._pace.hangs(left):
                left = 0.0
            try:
                return self.process.wait(min(1.0, left) if left is not None else 1.0)
            except subprocess.TimeoutExpired:
                if left == 0.0:
                    raise

    def ask_for_stacks(self) -> None:
        """Ask where every thread is, before a target that hangs is ended."""
        if hasattr(signal, "SIGUSR1") and self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(0.3)

    def end(self, how: signal.Signals) -> None:
        """Ask the process to end, once more if it takes further steps, and make it after :data:`GRACE_S`."""
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
        """Loader workers and other children of the target do not outlive it; then read what it had printed."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self._threads[0].join(timeout=2.0)

    def _read_output(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if PROFILER_NOISE in line:
                continue
            self._output.append(line)
            self._kept += len(line)
            while self._kept > OUTPUT_LIMIT and len(self._output) > 1:
                self._kept -= len(self._output.popleft())
            self._echo(line.decode("utf-8", "replace"))

    def _read_progress(self, fd: int) -> None:
        with os.fdopen(fd, "rb") as pipe:
            for line in pipe:
                with suppress(ValueError):  # a pipe that nobody reads would stop the child
                    self._pace.read(line.decode())

    @property
    def output(self) -> bytes:
        """The last part of what the target printed."""
        return b"".join(self._output)[-OUTPUT_LIMIT:]


# -- sealing -----------------------------------------------------------------------------------------------------------


def seal(plan: Plan, ended: str | int, child: Child) -> Recording:
    """Complete the manifest from outside, keep sources and output."""
    folder = Path(plan.folder)
    try:
        manifest = read_manifest(folder)
    except Exception as error:
        if ended == "interrupted":
            raise KeyboardInterrupt from None
        raise AuditProblem(
            f"the recording process ended before it began (exit code {ended})", "", child.output.decode("utf-8", "replace")
        ) from error
    problem = manifest.get("error") or {}
    if manifest["outcome"] == "not run":
        raise TargetProblem(problem["problem"], problem.get("hint", ""), problem.get("detail", ""))
    manifest["passes"] = [{"name": name, "steps": steps} for name, steps in counted(folder).items()]
    _settle_outcome(manifest, ended, folder)
    _, names, secrets = redaction.redacted_arguments(plan.args)
    output = redaction.redacted_text(child.output.decode("utf-8", "surrogateescape"), secrets)
    (folder / "output.txt").write_bytes(output.encode("utf-8", "surrogateescape"))
    _mask_error(manifest.get("error"), secrets)
    manifest["configs"], manifest["withheld"] = worth_keeping(manifest.get("configs") or (), manifest["cwd"])
    files = [*files_of(folder, manifest), *manifest["configs"]]
    manifest["sources"] = store_sources(folder, manifest["cwd"], iter(files))
    manifest["masked"] = masked_lines(manifest["cwd"], files)
    manifest["masked_arguments"] = list(names)
    (folder / STACKS_FILE).unlink(missing_ok=True)
    write_manifest(folder, manifest)
    return Recording(folder)


def _mask_error(error: Row | None, secrets: Sequence[str]) -> None:
    """What a program says as it fails often holds the address or the token that did not work."""
    for field in ("message", "traceback"):
        if error and isinstance(error.get(field), str):
            error[field] = redaction.redacted_text(error[field], secrets)


STACKS_FILE = "stacks.txt"


def _settle_outcome(manifest: Row, ended: str | int, folder: Path) -> None:
    if isinstance(ended, str):  # timeout, interrupted, or another rank failed
        if not (manifest.get("finished") and manifest["outcome"] in ("completed", "oom", "raised")) or ended == "timeout":
            manifest["outcome"] = "killed" if ended == FOLLOWED else ended
        if ended == "timeout":
            manifest["error"] = _error("Timeout", "the target did not finish in the time given", manifest, _where_it_hung(folder))
        elif ended == "interrupted" and not manifest.get("finished"):
            manifest["error"] = _error("KeyboardInterrupt", "it did not stop when asked to", manifest, _where_it_hung(folder))
        elif manifest["outcome"] == "killed":
            manifest["error"] = _error(FOLLOWED, "it was ended because another rank had failed, or was done, before it", manifest)
        return
    if manifest.get("finished"):
        return
    if ended < 0:
        name = signal.Signals(-ended).name if -ended in set(signal.Signals) else str(-ended)
        hint = " (the kernel's out-of-memory killer does this)" if name == "SIGKILL" else ""
        manifest["outcome"] = "killed"
        manifest["error"] = _error(name, f"the process was ended by {name}{hint}", manifest)
    else:
        manifest["outcome"] = "raised"
        message = f"the target left the process with exit code {ended} without returning (os._exit or a crash of the interpreter)"
        manifest["error"] = _error("os._exit", message, manifest)


def _error(kind: str, message: str, manifest: Row, trace: str = "") -> Row:
    last = manifest["passes"][-1] if manifest["passes"] else None
    where = {"step": last["steps"], "pass_name": last["name"]} if last else {}
    return {**where, **(manifest.get("error") or {}), "type": kind, "message": message, "traceback": trace}


def _where_it_hung(folder: Path) -> str:
    path = folder / STACKS_FILE
    text = path.read_text(errors="replace") if path.is_file() else ""
    root = str(Path(__file__).resolve().parent)
    lines = [line for line in text.splitlines() if root not in line and '"<string>"' not in line]
    return "\n".join(lines)


def counted(folder: Path) -> dict[str, int]:
    """Completed steps by pass, from the rows themselves (the manifest of a killed child is old)."""
    counts: dict[str, int] = {}
    for row in Recording(folder).rows("steps"):
        counts[row["pass"]] = counts.get(row["pass"], 0) + 1
    return counts


def files_of(folder: Path, manifest: Row) -> list[str]:
    """The user's files that a recording names."""
    files: dict[str, None] = dict.fromkeys(manifest.get("target_files", ()))
    recording = Recording(folder)
    files.update(dict.fromkeys(row["file"] for row in recording.rows(SITES)))
    for part, names in (("loaders", ("dataset_file", "collate_file")), ("graphs", ("file",))):
        for row in recording.rows(part):
            files.update(dict.fromkeys(str(row[name]) for name in names if row.get(name)))
    return [file for file in files if os.path.isfile(file)]


def clear(folder: Path) -> None:
    """Remove a recording's files, so that it can be made again."""
    for entry in folder.iterdir():
        if entry.is_file():
            entry.unlink()
    for entry in (folder / SOURCES).glob("*"):
        entry.unlink()


def add_warning(recording: Recording, text: str) -> None:
    """Add a sentence to the recording's warnings, on disk too."""
    manifest: dict[str, Any] = recording.manifest
    manifest["warnings"] = [*manifest.get("warnings", []), text]
    write_manifest(recording.folder, manifest)
