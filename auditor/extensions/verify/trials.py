"""Single measured runs: the target in a copy of its project, in a fresh process, fixed seeds."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, cast

from auditor.errors import AuditProblem
from auditor.evidence.recorded.steps import device_peak
from auditor.evidence.table import Evidence
from auditor.extensions.verify.intervals import quiet_run
from auditor.model.devices import SHADOW
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import StepRow, known
from auditor.recordings.schema.sync import CopyRow, ReadRow
from auditor.recordings.writer import on_disk
from auditor.runs import child_process
from auditor.runs.course import seconds_to
from auditor.runs.finalize import raised
from auditor.runs.plan import REHEARSAL, REHEARSED_STEPS, Device, Plan, Trial
from auditor.runs.progress import silent
from auditor.runs.project_copy import ProjectCopy
from auditor.syntax.config_files import suffix_of

if TYPE_CHECKING:
    from typing import Self
import math
from collections.abc import Iterable
from dataclasses import field

from auditor.model import Edit
from auditor.recordings.schema.other_runs import LossRow, ParameterRow

# -- what a run computed ---------------------------------------------------------------------------

REORDERING = {
    "fused": "a fused optimizer rounds in another order",
    "foreach": "a multi-tensor optimizer rounds in another order",
    "memory_format": "another layout chooses kernels that add in another order",
}
"""Keywords whose change may round differently, and why. Other patches must keep every bit."""

TOLERANCE = 1e-3
"""Largest relative difference of a loss, or of a parameter's norm, that is put down to rounding
where rounding may differ. float32 rounds at 6e-8; a few ten steps of training amplify a difference
of one rounding by some thousands at most."""


@dataclass(frozen=True)
class Results:
    """A run's losses, and for each parameter its norm and the sum of its bits (None: unknown)."""

    losses: tuple[float, ...]
    parameters: tuple[tuple[str, float, int | None], ...]
    names: dict[str, str] = field(default_factory=dict, compare=False)
    """What a module calls them, by their places in the optimizers."""

    @classmethod
    def read(cls, recording: Recording) -> Results:
        """From the ``results`` part."""
        losses = (float.fromhex(row.value) for row in recording.rows(LossRow))
        rows = list(recording.rows(ParameterRow))
        parameters = ((row.place, float.fromhex(row.value), row.bits) for row in rows)
        return cls(tuple(losses), tuple(parameters), {row.place: row.name for row in rows})

    @property
    def any(self) -> bool:
        """True if there is anything to compare."""
        return bool(self.losses or self.parameters)


@dataclass(frozen=True)
class Agreement:
    """``same`` says whether the results agree; ``note`` how closely, or where they part."""

    same: bool
    note: str


def tolerance_for(edits: Iterable[Edit]) -> tuple[float, str]:
    """What difference is allowed after these edits, and why; (0, "") where every bit must stay."""
    reasons = dict.fromkeys(
        REORDERING[edit.keyword] for edit in edits if edit.keyword in REORDERING
    )
    return (TOLERANCE, "; ".join(reasons)) if reasons else (0.0, "")


def agree(before: Results, after: Results, tolerance: float = 0.0, reason: str = "") -> Agreement:
    """Compare what two runs computed, from the same seeds."""
    if before == after:
        return Agreement(same=True, note=f"{_counted(before)} bit-identical")
    parted = _parted(before, after, tolerance)
    if parted:
        return Agreement(same=False, note=parted)
    return Agreement(
        same=True, note=f"{_counted(before)} within {tolerance:g} of each other ({reason})"
    )


def _counted(results: Results) -> str:
    steps, parameters = len(results.losses), len(results.parameters)
    return f"{steps} loss{'es' * (steps != 1)} and {parameters} parameter{'s' * (parameters != 1)}"


def _parted(before: Results, after: Results, tolerance: float) -> str:
    """Where the two differ by more than the tolerance, in a sentence; empty if nowhere."""
    for number, (one, other) in enumerate(zip(before.losses, after.losses, strict=False), 1):
        if not _near(one, other, tolerance):
            return f"loss {number} is {other:.9g} instead of {one:.9g}"
    if len(before.losses) != len(after.losses):
        return f"backward was called on {len(after.losses)} losses instead of {len(before.losses)}"
    if [place for place, _, _ in before.parameters] != [place for place, _, _ in after.parameters]:
        return "the optimizers hold other parameters"
    for (place, one, bits), (_, other, others) in zip(
        before.parameters, after.parameters, strict=True
    ):
        said = before.names.get(place) or place
        if not _near(one, other, tolerance):
            return (
                f"{said} ends with norm {other:.9g} instead of {one:.9g}, though all losses agree"
            )
        if bits != others and not tolerance:
            return f"{said} ends with other bits, though all losses agree"
    return ""


def _near(one: float, other: float, tolerance: float) -> bool:
    if one == other or (math.isnan(one) and math.isnan(other)):
        return True
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


# -- one run ---------------------------------------------------------------------------------------

SEED = 1337
SECONDS = 1.0
"""Time that a run's measured steps should take: about what a process needs to start."""

USUAL_STEPS, MOST_STEPS = 10, 100
SLOW_SECONDS = 10.0
"""Of fast steps ``USUAL_STEPS`` at least; of slow ones what fits, but ``FEWEST_STEPS``."""

FEWEST_STEPS = 3

RESULTS, SYNCS = "results", "reads"
"""Parts of the trials' recordings; host syncs are only counted where there is a device, real or
shadow. A rehearsal writes its copies to the device beside the reads."""

LEAST_TIMEOUT_S, PATIENCE = 120.0, 5.0
"""A run counts as hanging after these seconds, or after this multiple of the longest run before it
(the audit included) if that is longer. The audit did more steps under more instruments, and the
load of a shared machine rarely makes up for five times that.
"""


@dataclass(frozen=True)
class Measured:
    """What one run gave. Times in us, ``seconds`` is how long all of it took.

    ``loaded`` are the files that it imported or read, relative to the copy if they lie in it. ``failed``
    says in a sentence why it did not reach its end; empty if it did.
    """

    results: Results
    step_us: float | None
    peak_device: int | None
    peak_host: int | None
    syncs: float | None
    loaded: frozenset[str]
    seconds: float
    failed: str = ""


class Laboratory:
    """Makes trials of one recorded target, with no more steps than fit into ``seconds`` as far as a
    median allows.

    Use as a context: its folder is removed at the end. A run that takes longer than ``patience``
    (s) is ended.
    """

    def __init__(self, evidence: Evidence, seconds: float = SLOW_SECONDS) -> None:
        self._project = Path(on_disk(evidence.recording.cwd))
        self._scratch = Path(tempfile.mkdtemp(prefix="audit-verify-"))
        self._plan = _plan(evidence, seconds)
        self.patience = max(LEAST_TIMEOUT_S, PATIENCE * _took(evidence))
        self.runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def steps(self) -> int:
        """Steps that each run measures."""
        return self._plan.steps

    @property
    def rehearsed_steps(self) -> int:
        """Steps that each run in the rehearsal of the GPU path takes."""
        return min(self._plan.steps, REHEARSED_STEPS)

    @property
    def rehearses(self) -> bool:
        """True if the trials run on the shadow device: they have no times."""
        return self._plan.rehearses

    def run(self, patched: Sequence[PatchedFile] = (), *, rehearsed: bool = False) -> Measured:
        """One run. What the target does never raises; a recorder that fails does."""
        home = self._scratch / str(self.runs)
        self.runs += 1
        began = time.monotonic()
        try:
            with ProjectCopy(self._project, {file.path: file.after for file in patched}) as place:
                plan = place.plan(replace(self._plan, folder=str(home), purpose=Trial(SEED)))
                if rehearsed:
                    plan = replace(plan.on_shadow(self.rehearsed_steps), parts=(RESULTS, SYNCS))
                measured = self._measured(plan, began)
        finally:
            shutil.rmtree(home, ignore_errors=True)
        if not measured.failed:
            self.patience = max(self.patience, PATIENCE * measured.seconds)
        return measured

    def _measured(self, plan: Plan, began: float) -> Measured:
        try:
            recording = child_process.record_once(
                plan, time.monotonic() + self.patience, silent, lambda text: None
            )
        except AuditProblem as problem:
            took = time.monotonic() - began
            return Measured(
                Results((), ()), None, None, None, None, frozenset(), took, problem.message
            )
        if recording.manifest["outcome"] == "interrupted":
            raise KeyboardInterrupt
        evidence = Evidence(recording)
        times = quiet_run(evidence).us
        rows = evidence.rows(StepRow)
        counted = [row for row in rows if row.pass_name in ("quiet", "loud")]
        host = (known(row.rss) for row in counted if row.pass_name == "quiet")
        return Measured(
            Results.read(recording),
            median(times) if times else None,
            device_peak(counted),
            max((size for size in host if size is not None), default=None),
            _syncs(recording, rows),
            files_read(recording),
            time.monotonic() - began,
            _failure(recording, self.patience),
        )


def files_read(recording: Recording) -> frozenset[str]:
    """Files that a run imported, or opened as configuration; shell scripts are settled before."""
    manifest = recording.manifest
    files = (*manifest.get("target_files", ()), *manifest.get("configs", ()))
    return frozenset(recording.relative(file) for file in files if suffix_of(file) != ".sh")


def _took(evidence: Evidence) -> float:
    """Seconds of the audit's longest process, from its first instrument to its last step."""
    made = (evidence.recording, evidence.recording.inside(REHEARSAL))
    return max(seconds_to(each) for each in made if each is not None)


def _plan(evidence: Evidence, seconds: float) -> Plan:
    """As the audit ran, without its instruments, and no more steps than it had."""
    manifest = evidence.recording.manifest
    done = {each["name"]: each["steps"] for each in manifest["passes"]}
    steps, warmup = steps_for(quiet_run(evidence).us, min(SLOW_SECONDS, seconds))
    steps = max(1, min(steps, done.get("quiet") or done.get("loud") or 1))
    device, argv = evidence.recording.device, tuple(manifest.get("argv", ()))
    # values are compared, and a null device has none
    asked = cast("Device", SHADOW.word if device.null else device.word)
    parts = (RESULTS, SYNCS) if device.accelerator else (RESULTS,)
    return Plan(
        manifest["target"], argv, steps, min(warmup, done.get("warmup", 0)), asked, "", parts
    )


def steps_for(us: Sequence[float], limit: float = SLOW_SECONDS) -> tuple[int, int]:
    """Steps to measure, and most warm-up steps, by an audited step's time: ``limit`` s each."""
    if not us:
        return USUAL_STEPS, USUAL_STEPS
    seconds = median(us) / 1e6
    fitting = round(limit / seconds)
    wanted = max(round(min(SECONDS, limit) / seconds), min(USUAL_STEPS, fitting))
    return max(FEWEST_STEPS, min(MOST_STEPS, wanted)), max(1, fitting)


def _syncs(recording: Recording, rows: Sequence[StepRow]) -> float | None:
    """Reads, and blocking copies of a rehearsal, in each loud step; None without any device."""
    loud = len([row for row in rows if row.pass_name == "loud"])
    if not loud or not recording.device.accelerator:
        return None
    reads = sum(row.n for row in recording.rows(ReadRow) if row.pass_name == "loud" and not row.lib)
    copies = (
        row
        for row in recording.rows(CopyRow)
        if row.pass_name == "loud" and not row.lib and row.blocking
    )
    return (reads + sum(row.n for row in copies)) / loud


def _failure(recording: Recording, patience: float) -> str:
    manifest = recording.manifest
    if manifest["outcome"] == "timeout":
        return f"it was still running after {patience:.0f} s and was ended"
    if manifest["outcome"] == "completed":
        return "" if not manifest.get("exhausted") else "it ended before all steps were done"
    return raised(manifest)[0]


# -- the time that all of them may take ------------------------------------------------------------


RECENT = 3
"""Runs that say how long the next one takes: on a shared machine the load comes and goes."""


class Budget:
    """``seconds`` to spend from now on, by the clock ``now`` (s).

    A run that was begun is not cut off; so the whole may take longer by as much as its last run is
    slower than those before.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._began = now()
        self._lengths: deque[float] = deque(maxlen=RECENT)

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began

    def measured(self, run: Callable[[], Measured]) -> Measured:
        """Make a run, and remember how long it took with all that belongs to it."""
        began = self._now()
        measured = run()
        self._lengths.append(self._now() - began)
        return measured

    def length(self) -> float | None:
        """Seconds of the longest run of late; None before the first."""
        return max(self._lengths, default=None)

    def room(self) -> int:
        """How many more runs of that length end in time; before the first any, if there is time."""
        left, length = self.seconds - self.spent, self.length()
        if left <= 0.0:
            return 0
        return sys.maxsize if length is None else int(left / max(length, 1e-3))
