"""A target that fails before all its passes were done is run once more, up to the step before, for
the passes it has not reached.

The second run is a recording of its own inside the first, whose manifest says which passes are read
from there. Outcome and error stay those of the first run.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from auditor.errors import AuditProblem
from auditor.model.devices import device_named
from auditor.recordings.folder import Recording, Row, write_manifest
from auditor.recordings.sources import masked_lines, store_sources
from auditor.runs import child_process
from auditor.runs.child_process import FOLLOWED, add_warning, counted, files_of
from auditor.runs.course import quiet, seconds_to
from auditor.runs.plan import LEAST_RERUN, RERUN, RERUN_PATIENCE, RERUN_PATIENCE_S, Plan
from auditor.runs.progress import Progress, stage

FAILED = ("raised", "oom", "killed", "timeout")
"""Outcomes after which the target is run again. One that was interrupted is left alone."""

ATTEMPTS = 2
"""Second runs at most: one that fails earlier than the first is done again up to there."""

ENOUGH = {"quiet": 3, "loud": 6}
"""Steps from which a pass that was cut off is kept as it is (of those not named: 1)."""

Again = Callable[[Plan, float | None, Progress], Sequence[Recording]]
"""Makes a second run: its plan, its deadline by ``time.monotonic``, progress; one recording for
each rank.
"""


@dataclass(frozen=True)
class Early:
    """How a run failed early: after ``steps`` whole steps, with ``kept`` passes done and
    ``missing`` ones not.
    """

    steps: int
    kept: tuple[str, ...]
    missing: tuple[str, ...]
    seconds: float

    @classmethod
    def of(cls, recordings: Sequence[Recording]) -> Early | None:
        """From the recordings of all ranks; None where none failed, or nothing is missing."""
        if not any(each.manifest["outcome"] in FAILED for each in recordings):
            return None
        if any(each.manifest["outcome"] == "interrupted" for each in recordings):
            return None
        done = [counted(each.folder) for each in recordings]
        kept = frozenset.intersection(
            *(_kept(each.manifest, steps) for each, steps in zip(recordings, done, strict=True))
        )
        planned = {
            row["name"]: None for each in recordings for row in each.manifest.get("planned", ())
        }
        missing = tuple(name for name in planned if name not in kept and name != "warmup")
        seconds = max(map(seconds_to, recordings))
        steps = min(sum(each.values()) for each in done)
        return cls(steps, tuple(sorted(kept)), missing, seconds) if missing or not steps else None


def _kept(manifest: Row, done: dict[str, int]) -> frozenset[str]:
    """Passes whose rows are all there: done to the end, or cut off late enough by an error that let
    the probes write.
    """
    planned = {row["name"]: row["steps"] for row in manifest.get("planned", ())}
    least = {
        name: 1 if device_named(manifest["device"]).simulated else ENOUGH.get(name, 1)
        for name in done
    }
    written = {
        name
        for name, steps in done.items()
        if steps >= planned.get(name, 1) or manifest.get("finished") or name == "quiet"
    }
    return frozenset(
        name for name in written if done[name] >= min(least[name], planned.get(name, 1))
    )


def rerun(
    plan: Plan,
    recordings: Sequence[Recording],
    deadline: float | None,
    progress: Progress,
    again: Again,
) -> None:
    """Run a target that failed early once more, and join what that gave to the recordings of the
    first run.

    Says in a warning of each recording what was done, or why it was not.
    """
    early = Early.of(recordings)
    if early is None:
        return
    failed = _how(_first_failed(recordings), early.steps)
    why = _in_vain(early, deadline)
    if why:
        _warn(recordings, f"{failed}: {why}")
        return
    stage(progress, "second run")
    made, steps, failures = _attempts(plan, early, deadline, progress, again)
    if not made:
        _warn(
            recordings,
            f"{failed}: a second run up to there {failures}, so the passes after it are missing",
        )
        return
    for recording, second in zip(recordings, made, strict=True):
        _join(recording, second, steps)
    _warn(
        recordings,
        f"{failed}: {_judged(recordings[0], steps)}{f'; {failures}' if failures else ''}",
    )


def _first_failed(recordings: Sequence[Recording]) -> Recording:
    """The rank that failed on its own, and first; the others lose their connection to it."""
    errors = {number: each.manifest.get("error") or {} for number, each in enumerate(recordings)}
    failed = [
        number for number, each in enumerate(recordings) if each.manifest["outcome"] in FAILED
    ]
    own = [number for number in failed if errors[number].get("type") != FOLLOWED]
    return recordings[min(own or failed, key=lambda number: errors[number].get("time_us") or 0)]


def _in_vain(early: Early, deadline: float | None) -> str:
    """Why there is no second run; empty if there is one."""
    if not early.steps:
        return "there is no step to run again, so no step is judged"
    if early.steps < LEAST_RERUN:
        return f"too few to run them again and judge them ({LEAST_RERUN} are needed)"
    if deadline is not None and deadline - time.monotonic() < early.seconds:
        return (
            "it was not run again for the other passes, since the time given is used up (--timeout)"
        )
    return ""


def _attempts(
    plan: Plan, early: Early, deadline: float | None, progress: Progress, again: Again
) -> tuple[Sequence[Recording], int, str]:
    """The second run's recordings (none where it gave nothing), the steps it was made for, and how
    it failed, if it did.
    """
    steps, failures = early.steps, ""
    made: Sequence[Recording] = ()
    for _ in range(ATTEMPTS):
        patience = time.monotonic() + RERUN_PATIENCE_S + RERUN_PATIENCE * early.seconds
        wanted = plan.rerun(steps, early.kept)
        for folder in _folders(plan):
            shutil.rmtree(folder, ignore_errors=True)
        try:
            made = again(
                wanted, patience if deadline is None else min(deadline, patience), progress
            )
        except AuditProblem as problem:
            return (), steps, f"could not be made ({problem.message})"
        bad = next((each for each in made if each.manifest["outcome"] != "completed"), None)
        if bad is None or bad.manifest["outcome"] == "interrupted":
            return made, steps, failures
        reached = min(sum(counted(each.folder).values()) for each in made)
        failures = (
            f"the second run failed too, {_after(reached)} (the target does not do the same each "
            "time?)"
        )
        if reached < LEAST_RERUN or (
            deadline is not None and deadline - time.monotonic() < early.seconds
        ):
            break
        steps = reached
    return made, steps, failures


def _folders(plan: Plan) -> list[Path]:
    home = Path(plan.folder)
    return [home / RERUN] if plan.world_size == 1 else list(home.glob(f"*/{RERUN}"))


def _join(recording: Recording, second: Recording, steps: int) -> None:
    """Write into the first run's manifest what is read from the second."""
    manifest, own, new = recording.manifest, counted(recording.folder), counted(second.folder)
    taken = [
        name
        for name, n in new.items()
        if name != "warmup" and n > (own.get(name, 0) if name == "quiet" else 0)
    ]
    kept = [row for row in manifest["passes"] if row["name"] not in taken]
    manifest["passes"] = [*kept, *({"name": name, "steps": new[name]} for name in taken)]
    manifest["rerun"] = {"passes": taken, "steps": steps}
    manifest["warnings"] = list(
        dict.fromkeys([*manifest.get("warnings", ()), *second.manifest.get("warnings", ())])
    )
    manifest["probes"] = {**second.manifest.get("probes", {}), **manifest.get("probes", {})}
    if second.manifest["outcome"] == "interrupted":
        manifest["outcome"] = "interrupted"
    keep_sources(recording, second)
    for cached in ("rerun", "taken", "_site_rows", "_sites"):
        recording.__dict__.pop(cached, None)


def keep_sources(recording: Recording, further: Recording) -> None:
    """A line found by a further run may lie in a file that no site of the main recording names."""
    manifest = recording.manifest
    files = [*files_of(further.folder, further.manifest), *further.manifest.get("configs", ())]
    sources = store_sources(recording.folder, manifest["cwd"], iter(files))
    manifest["sources"] = {**sources, **manifest["sources"]}
    manifest["masked"] = {**masked_lines(manifest["cwd"], files), **manifest.get("masked", {})}
    write_manifest(recording.folder, manifest)


# -- words -----------------------------------------------------------------------------------------


def _how(recording: Recording, steps: int) -> str:
    """``the target raised ValueError after 17 steps``."""
    error = recording.manifest.get("error") or {}
    kind = str(error.get("type", ""))
    what = {
        "raised": "left the process" if kind == "os._exit" else f"raised {kind or 'an error'}",
        "oom": "ran out of memory",
        "killed": f"was killed by {kind}" if kind.startswith("SIG") else "was ended",
        "timeout": "did not end in time",
    }
    return f"the target {what[recording.manifest['outcome']]} {_after(steps)}"


def _after(steps: int) -> str:
    return (
        f"after {steps} whole step{'s' * (steps != 1)}"
        if steps
        else "before a whole step was recorded"
    )


def _judged(recording: Recording, steps: int) -> str:
    """How many steps the diagnostic passes have by now."""
    if not recording.taken:
        return "a second run up to there gave nothing more"
    done = {
        row["name"]: row["steps"] for row in recording.manifest["passes"] if row["name"] != "quiet"
    }
    n = done.get("loud") or max(done[name] for name in recording.taken)
    return f"it was run again up to the step before, and {n} of these {steps} steps were diagnosed"


def _warn(recordings: Sequence[Recording], text: str) -> None:
    for each in recordings:
        add_warning(each, text)


def alone(plan: Plan, deadline: float | None, progress: Progress) -> Sequence[Recording]:
    """The second run of a single process; what the target prints was shown by the first."""
    return [child_process.record_apart(replace(plan, world_size=1), deadline, progress, quiet)]
