"""Re-runs of the user's program for ``audit plan``: a fresh process in a fresh copy of the project
each, a few steps, on a card without a limit.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from auditor import null_device
from auditor.errors import TargetProblem
from auditor.extensions.plan.batch_size import BatchSetting
from auditor.extensions.plan.measured import Measured, measured
from auditor.recordings.folder import Recording, Row
from auditor.recordings.schema.sync import DeviceUseRow, LimitRow
from auditor.runs import child_process
from auditor.runs.finalize import raised
from auditor.runs.plan import Change, Device, Plan
from auditor.runs.progress import silent
from auditor.runs.project_copy import sheltered

PARTS = ("planned", "loaders", "batches")

ONCE = ("course",)
"""What the first re-run on the null device records besides: lines whose results have sizes that
depend on values, which are zeros there.
"""

RANKS = ("RANK", "MASTER_ADDR", "MASTER_PORT", "process group")
"""Words of programs, and of torch, that miss a launcher or the other ranks."""

WARMUP, STEPS = 1, 3
"""The first step makes gradients and optimizer state; others show the peak, and if it stays."""

ENDLESS = 1 << 44
"""Bytes of the card that is played: nothing runs out of memory, so that each peak is known."""

ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
"""Variables that torch's allocator reads, the newer name first."""


class Failed(Exception):
    """A re-run without an answer, and why. ``ours``: it is no fault of the program."""

    def __init__(self, message: str, *, ours: bool = False) -> None:
        super().__init__(message)
        self.ours = ours


@dataclass(frozen=True)
class Rerun:
    """One re-run: what is changed, for which batch size (None: as is), which allocator setting."""

    change: Change = field(default_factory=Change)
    batch: int | None = None
    allocator: str = ""


@dataclass
class Reruns:
    """Makes re-runs of one target. ``device`` is ``rehearse`` (the shadow) or ``null``."""

    target: str
    args: tuple[str, ...]
    device: Device
    gpu: str
    deadline: float | None = None
    setting: BatchSetting | None = None
    n: int = 0
    files: tuple[str, ...] = ()
    """The program's own files, relative, the target's first; known after the first run."""
    warnings: dict[str, None] = field(default_factory=dict)
    """What the re-runs warn of, each once."""

    def run(self, wanted: Rerun) -> Measured:
        """One re-run. Raises :class:`Failed` without a step, or :class:`KeyboardInterrupt`."""
        self.n += 1
        folder = tempfile.mkdtemp(prefix="audit-plan-")
        began = time.monotonic()
        try:
            recording = self._recorded(wanted, Path(folder))
            self._refuse(recording)
            self.files = self.files or _own_files(recording)
            self.warnings.update(dict.fromkeys(recording.manifest.get("warnings", ())))
            return measured(recording, time.monotonic() - began)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _recorded(self, wanted: Rerun, folder: Path) -> Recording:
        plan, files = self._planned(wanted, folder)
        with sheltered(plan, files) as apart:
            try:
                recording = child_process.record_once(
                    apart, self.deadline, silent, lambda text: None
                )
            except TargetProblem as problem:
                if self.n == 1:
                    raise
                raise Failed(problem.message) from None
        return recording

    def _planned(self, wanted: Rerun, folder: Path) -> tuple[Plan, Mapping[str, bytes]]:
        change, args, files = wanted.change, self.args, {}
        setting = self.setting
        if setting is not None and wanted.batch is not None and wanted.batch != setting.size:
            args, files = setting.args(args, wanted.batch), setting.files(wanted.batch)
            if setting.loaders:
                change = msgspec.structs.replace(
                    change, batch=(wanted.batch, setting.size), loaders=setting.lines
                )
        variables = {}
        if self.device == "null":
            variables = null_device.environment(self.gpu, memory_bytes=ENDLESS)
        if wanted.allocator:
            variables.update(dict.fromkeys(ALLOCATOR, with_setting(wanted.allocator)))
        plan = Plan(
            self.target,
            args,
            STEPS,
            WARMUP,
            self.device,
            str(folder / "recording"),
            (*PARTS, *(ONCE if self.device == "null" and self.n == 1 else ())),
            memory_limit=ENDLESS if self.device == "rehearse" else None,
            gpu=self.gpu,
            variables=variables,
            purpose=change,
        )
        return plan, files

    def _refuse(self, recording: Recording) -> None:
        manifest = recording.manifest
        if manifest["outcome"] == "interrupted":
            raise KeyboardInterrupt
        broken = manifest.get("probes", {}).get("planned")
        if broken:
            raise Failed(f"the change could not be made: {broken['error']}", ours=True)
        limit = next(iter(recording.rows(LimitRow)), None)
        if limit is not None:
            raise Failed(f"the rehearsal cannot do it: {limit.reason}", ours=True)
        steps = sum(row["steps"] for row in manifest.get("passes", ()))
        if steps < WARMUP + 1:
            if manifest["outcome"] == "timeout":  # of a batch whose memory was not seen
                raise Failed(
                    "the time given was used up before a step was complete (--budget)", ours=True
                )
            raise Failed(_why(manifest))
        used = recording.rows(DeviceUseRow)
        if used and not any(row.n for row in used):
            raise Failed(
                "the program put nothing on the CUDA device that it was offered: its device is "
                "fixed to the CPU (an argument after -- may change that)",
                ours=True,
            )


def _why(manifest: Row) -> str:
    """Why a program took no step, in one sentence."""
    if (manifest.get("error") or {}).get("type"):
        said, where = raised(manifest)
        said = said[:300]
        ranks = any(word in said for word in RANKS)
        hint = "; audit run --world N rehearses a program of several ranks" if ranks else ""
        return f"the program ended with {said}{where}{hint}"
    return f"the program took fewer than {WARMUP + 1} steps"


def _own_files(recording: Recording) -> tuple[str, ...]:
    """The target's file first."""
    files = [recording.relative(file) for file in recording.manifest.get("target_files", ())]
    target = str(recording.manifest["target"]).removeprefix("-m ").partition(":")[0]
    path = target if target.endswith(".py") else target.replace(".", "/") + ".py"
    path = recording.relative(os.path.abspath(path))
    first = [path] if os.path.isfile(path) else []
    return tuple(dict.fromkeys((*first, *(each for each in files if not os.path.isabs(each)))))


def with_setting(setting: str) -> str:
    """The allocator's settings that the environment has, with one more."""
    given = next((os.environ[name] for name in ALLOCATOR if os.environ.get(name)), "")
    return ",".join(each for each in (given, setting) if each)
