"""Runs a user's step under some probes, as the session does, and gives back the rows."""

import contextlib
import functools
import importlib.util
import inspect
import itertools
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context, Probe
from auditor.model.devices import CPU
from auditor.recordings.folder import Recording, RecordingWriter, write_manifest
from tests.recordings.strict import undeclared

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_COUNT = itertools.count()


class UserFrames(Frames):
    """Frames for which only the programs that tests write are the user's, and not these files."""

    def is_user(self, file: str) -> bool:
        return not os.path.abspath(file).startswith(_HERE) and super().is_user(file)


def load(folder, source):
    """Write a program into a file and import it as the user's module; the one before is gone."""
    for earlier in [module for module in sys.modules if module.startswith("program")]:
        del sys.modules[earlier]
    name = f"program{next(_COUNT)}"
    return _imported(name, folder, source)


def framework(folder: Path, source: str) -> Any:
    """Write a library that the program may ``import framework``, which is installed."""
    installed = folder / "lib" / "site-packages"
    installed.mkdir(parents=True, exist_ok=True)
    return _imported("framework", installed, source)


def _imported(name: str, folder: Path, source: str) -> Any:
    file = folder / f"{name}.py"
    file.write_text(textwrap.dedent(source).lstrip("\n"))
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def line_of(module: Any, mark: str) -> int:
    """Number of the only line that carries ``# mark``."""
    lines = Path(module.__file__).read_text().splitlines()
    found = [number for number, line in enumerate(lines, 1) if re.search(rf"# {mark}\b", line)]
    assert len(found) == 1, (mark, found)
    return found[0]


SITES = {"at", "by", "made_at", "loader_at", "local_at", "entered_at", "cut_at"}
HAS_KERNELS = hasattr(torch.library, "get_kernel")
"""False before torch 2.9."""
NO_KERNELS = "cannot override kernels"


class Drive:
    """Probes over one recording. Import the user's program inside the block, then run passes."""

    def __init__(self, folder: Path, *classes: type[Probe]) -> None:
        self.folder = folder / f"recording{next(_COUNT)}"
        self.writer = RecordingWriter(self.folder)
        self.warnings: list[str] = []
        self.context = Context(self.writer, UserFrames(self.writer), device=CPU, warn=self._warned)
        self.probes = [cls(self.context) for cls in classes]

    def _warned(self, warning: str) -> None:
        if HAS_KERNELS or NO_KERNELS not in warning:  # else each run says it (docs/log/versions.md)
            self.warnings.append(warning)

    def __enter__(self):
        for probe in self.probes:
            probe.install()
        return self

    def __exit__(self, *error: object) -> None:
        self.context.in_step = False
        for probe in reversed(self.probes):
            probe.stop()
            probe.uninstall()
        self.writer.close()
        write_manifest(self.folder, {"schema": "audit-recording/1", "cwd": str(self.folder.parent)})

    @contextlib.contextmanager
    def running(self, pass_name: str, target: Any = None) -> Iterator[None]:
        """A pass; ends also when the block raises."""
        self.context.pass_name, self.context.target, self.context.step = pass_name, target, 0
        running = [probe for probe in self.probes if probe.watches(pass_name)]
        for probe in running:
            probe.start()
        try:
            yield
        finally:
            self.context.in_step = False
            for probe in reversed(running):
                probe.stop()

    def step(self, do: Callable[[], Any]) -> None:
        """One step: only what ``do`` does is inside."""
        running = [probe for probe in self.probes if probe.watches(self.context.pass_name)]
        for probe in running:
            probe.step_begin()
        self.context.in_step = True
        do()
        self.boundary()

    def boundary(self) -> None:
        """The step is over."""
        self.context.in_step = False
        for probe in self.probes:
            if probe.watches(self.context.pass_name):
                probe.step_end()
        self.context.step += 1

    def run(self, pass_name: str, target: Any, steps: int = 4) -> None:
        """A pass of steps of a callable or a generator function."""
        if inspect.isgeneratorfunction(target):
            target = functools.partial(next, target())
        with self.running(pass_name, target):
            for _ in range(steps):
                self.step(target)

    def rows(self, part: str) -> list[dict[str, Any]]:
        """What was written so far, with sites resolved to ``line`` (of ``at``, ``by``,
        ``made_at``).
        """
        self.writer.flush()
        write_manifest(self.folder, {"schema": "audit-recording/1", "cwd": str(self.folder.parent)})
        assert undeclared(self.folder) == []
        recording = Recording(self.folder)
        rows = recording.rows(part)
        for row in rows:
            for key in SITES & row.keys():
                site = None if row[key] is None else recording.site_row(row[key])
                row[f"{key}_line"] = None if site is None else site.line
                row[f"{key}_site"] = None if site is None else msgspec.to_builtins(site)
        return rows


def watched(folder, source, *classes, run="loud", step="step", steps=4, load=load):
    """A program of which so many steps were watched, and the drive, whose rows can be read."""
    with Drive(folder, *classes) as drive:
        user = load(folder, source)
        drive.run(run, getattr(user, step), steps)
    return user, drive
