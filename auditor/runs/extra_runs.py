"""Runs after the main one, each a process and a recording of its own inside it: the replay and the
rehearsal.

Neither can disturb the main run's times, nor break it: what goes wrong in them becomes a sentence
in its warnings.
"""

from __future__ import annotations

import itertools
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace

from auditor.cycles import prolonged, whole_cycles
from auditor.errors import AuditProblem, TargetProblem
from auditor.recordings.folder import SITES, Recording
from auditor.recordings.schema import DeviceUseRow, LimitRow, NonfiniteRow, StepRow
from auditor.runs import child_process, null_run, ranks
from auditor.runs.child_process import add_warning, counted
from auditor.runs.finalize import raised
from auditor.runs.oom_run import explain_oom
from auditor.runs.plan import (
    LEAST_REHEARSED,
    LEAST_RERUN,
    REHEARSED_SLOWER,
    REHEARSED_STEPS,
    Plan,
)
from auditor.runs.progress import Progress, stage
from auditor.runs.project_copy import sheltered
from auditor.runs.rerun import FAILED, alone, keep_sources, rerun


def record(
    plan: Plan,
    timeout: float | None,
    progress: Progress,
    echo: Callable[[str], None],
    launched: ranks.Ranks | None = None,
) -> Recording:
    """The main run, then the replay of a step that went non-finite, the rehearsal of the GPU path
    and the same on the null device, where called for.

    A target that cannot run without CUDA is rehearsed instead, where ``--device auto`` found none.
    Several processes are neither replayed nor rehearsed: a rehearsal plays one rank on one GPU.
    ``timeout`` in s is for all of it; ``launched`` are the ranks where a launcher started them. Raises :class:`TargetProblem` when the target cannot be run
    at all; never raises for what the target does.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    if plan.world_size > 1:
        return ranks.record(plan, deadline, progress, echo, launched)
    if plan.rehearses:
        recording = _checked(_on_shadow(plan, deadline, progress, echo))
        rerun(plan, [recording], deadline, progress, alone)
        replay_nonfinite(plan, recording, deadline, progress)
        return recording
    try:
        recording = child_process.record(plan, deadline, progress, echo)
    except TargetProblem as problem:
        if plan.device != "auto" or not _needs_cuda(f"{problem.message} {problem.detail}"):
            raise
        shutil.rmtree(
            plan.folder, ignore_errors=True
        )  # what it wrote before it failed says nothing of the rehearsal
        return _rehearse_only(plan, deadline, progress, echo)
    if recording.manifest.get("unwritten"):
        return recording
    if plan.device == "auto" and _failed_without_cuda(recording):
        shutil.rmtree(recording.folder)
        return _rehearse_only(plan, deadline, progress, echo)
    _tell_of_ranks(plan, recording)
    rerun(plan, [recording], deadline, progress, alone)
    explain_oom(plan, recording, deadline, progress)
    replay_nonfinite(plan, recording, deadline, progress)
    rehearse(plan, recording, deadline, progress)
    return recording


FORKED = "Cannot re-initialize CUDA in forked subprocess"
"""What torch says where a worker process asks for CUDA, and the shadow device with it."""

MOST_FRAMES = 100
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d{1,7}),', re.MULTILINE)

UNSET = re.compile(r"\b(?:LOCAL_)?RANK|\b(?:LOCAL_)?WORLD_SIZE|\bMASTER_(?:ADDR|PORT)")
"""Variables that a launcher sets (docs of torch.distributed.run, Environment Variables)."""


def _tell_of_ranks(plan: Plan, recording: Recording) -> None:
    """How to start a script that asked for a launcher's variables, and found none."""
    error = recording.manifest.get("error") or {}
    said = str(error.get("message", ""))
    found = UNSET.search(said)
    asked = error.get("type") == "KeyError" or "rendezvous" in said
    if recording.manifest["outcome"] == "raised" and asked and found is not None:
        program = plan.target
        add_warning(
            recording,
            f"the target asks for {found[0]}, which a launcher sets: audit run {program} --nproc 2 "
            "starts two ranks on this machine; with torchrun: audit run -- torchrun "
            f"--nproc-per-node 2 {program}",
        )


def _on_shadow(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    try:
        return child_process.record(plan, deadline, progress, echo)
    except TargetProblem as problem:
        ours = _our_limit(problem.message)
        if not ours:
            raise
        raise TargetProblem(
            f"the GPU path cannot be rehearsed: {ours}",
            "--device cpu audits the rest",
            problem.detail,
        ) from None


def _checked(recording: Recording) -> Recording:
    ours = (
        _our_limit(*raised(recording.manifest)) if recording.manifest["outcome"] == "raised" else ""
    )
    why = limit_of(recording) or ours or _unused(recording)
    if why:
        raise TargetProblem(
            f"the GPU path cannot be rehearsed: {why}", "--device cpu audits the rest"
        )
    return recording


NO_CUDA = re.compile(
    r"not compiled with CUDA|No CUDA GPUs are available|no NVIDIA driver|not linked with support for cuda"
    r"|doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs"
    r"|torch\.cuda\.is_available\(\) is False|cuda\.is_available|Cannot access accelerator device when none is available"
    r"|module 'torch\._C' has no attribute '_cuda_|\bcuda\b.*\bnot available\b|requires? (a )?(CUDA|GPU)",
    re.IGNORECASE,
)
"""How torch, and programs, say that they cannot go on without CUDA."""


OUR_LIMIT = re.compile(
    r"'CUDA' backend|Cannot access accelerator device when none is available|not compiled with CUDA|compiled without CUDA"
    r"|not linked with support for cuda|no NVIDIA driver|NCCL built in|module 'torch\._C' has no attribute '_cuda_"
    r"|libcuda(rt)?\b|CUDA driver|\bactive drivers\b|No CUDA GPUs are available|cudaGetDeviceCount",
    re.IGNORECASE,
)
"""How code in C, of torch and others, says that it looked for a real device: in a rehearsal one was
promised.
"""


def _our_limit(said: str, where: str = "") -> str:
    """An error that a rehearsal ended with, as the rehearsal's own limit; empty if it is none."""
    if not OUR_LIMIT.search(said):
        return ""
    sentence = said.partition(". ")[0][:200]
    limit = (
        "this is the rehearsal's limit, no fault of the target: a call went past the played GPU to "
        "look for a real one"
    )
    return f"{limit} ({sentence}{where})"


def _needs_cuda(text: str) -> bool:
    return NO_CUDA.search(text) is not None


def _failed_without_cuda(recording: Recording) -> bool:
    error = recording.manifest.get("error") or {}
    last = "\n".join(str(error.get("traceback", "")).strip().splitlines()[-4:])
    return recording.manifest["outcome"] == "raised" and _needs_cuda(
        f"{error.get('message', '')}\n{last}"
    )


def _rehearse_only(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    stage(progress, "rehearsal")
    played = plan.on_shadow(REHEARSED_STEPS)
    compared = null_run.COMPARED if plan.native else ()
    played = replace(
        played,
        parts=tuple(dict.fromkeys((*played.parts, *compared))),
        value_steps=max(0, plan.steps - REHEARSED_STEPS),
    )
    recording = _checked(_on_shadow_apart(played, deadline, progress, echo))
    steps = whole_cycles(_plain_us(recording, "values"), REHEARSED_STEPS, plan.steps)
    if steps > REHEARSED_STEPS and recording.manifest["outcome"] == "completed":
        shutil.rmtree(recording.folder)
        played = replace(played, steps=steps, loud_steps=steps, value_steps=plan.steps - steps)
        recording = _checked(_on_shadow_apart(played, deadline, progress, lambda text: None))
        add_warning(recording, prolonged(steps))
    rerun(played, [recording], deadline, progress, alone)
    replay_nonfinite(played, recording, deadline, progress)
    add_warning(
        recording,
        "the target cannot run without CUDA, and there is none: only its rehearsal was audited, "
        "without times",
    )
    _on_null(played, recording, recording, deadline, progress)
    return recording


def _on_shadow_apart(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    """:func:`_on_shadow` in a copy of the working directory."""
    with sheltered(plan) as (apart, reached):
        recording = _on_shadow(apart, deadline, progress, echo)
    for sentence in reached:
        add_warning(recording, sentence)
    return recording


def _apart(
    plan: Plan, deadline: float | None, progress: Progress, echo: Callable[[str], None]
) -> Recording:
    """:func:`runner.record` in a copy of the working directory: the target ran there once, and
    would write a second time.

    Raises :class:`AuditProblem` where no copy can be made.
    """
    with sheltered(plan) as (apart, reached):
        recording = child_process.record(apart, deadline, progress, echo)
    for sentence in reached:
        add_warning(recording, sentence)
    return recording


def _interrupted(recording: Recording, further: Recording, name: str) -> None:
    """Ctrl-C in a run after the first ends the audit; what was recorded by then is judged."""
    manifest = recording.manifest
    manifest["error"] = manifest.get("error") or further.manifest.get("error")
    manifest["outcome"] = "interrupted"
    add_warning(recording, f"the {name} was interrupted")


# -- the replay ------------------------------------------------------------------------------------


def replay_nonfinite(
    plan: Plan, recording: Recording, deadline: float | None, progress: Progress
) -> None:
    """Run the target once more, up to the step that left non-finite values behind, and watch how
    they are born.

    The replay is a recording of its own inside this one. One that goes bad before its watched steps
    (a GPU's quiet pass is not looked at) is done again for that earlier step.
    """
    bad = NonfiniteRow.first(recording.rows(NonfiniteRow))
    if bad is None or recording.manifest["outcome"] == "interrupted":
        return
    for _ in range(2):
        step = bad.global_step
        if deadline is not None and deadline - time.monotonic() < _seconds_to(recording, step):
            add_warning(recording, f"step {step} was not replayed: the time given is used up")
            return
        wanted = plan.replay(step, bad.last_good)
        stage(progress, "replay")
        again = _replay_once(wanted, recording, deadline, progress)
        bad = NonfiniteRow.first(again.rows(NonfiniteRow)) if again is not None else None
        if again is not None and again.manifest["outcome"] == "interrupted":
            _interrupted(recording, again, "replay")
            return
        if bad is None:
            add_warning(recording, f"the replay of step {step} {_why_in_vain(again)}")
            return
        if bad.global_step >= wanted.replay_from:
            return


def _replay_once(
    plan: Plan, recording: Recording, deadline: float | None, progress: Progress
) -> Recording | None:
    shutil.rmtree(plan.folder, ignore_errors=True)
    try:
        again = child_process.record_apart(plan, deadline, progress, lambda text: None)
    except AuditProblem:
        return None
    keep_sources(recording, again)
    return again


def _why_in_vain(again: Recording | None) -> str:
    if again is None:
        return "could not be run"
    ended = again.manifest["outcome"]
    return (
        f"was cut off ({ended})"
        if ended in ("timeout", "interrupted")
        else "did not reproduce it (the target is not seeded?)"
    )


def _seconds_to(recording: Recording, step: int) -> float:
    """How long the run took to the end of a step, the start of the process left out."""
    rows = recording.rows(StepRow)
    last = rows[min(step, len(rows) - 1)] if rows else None
    return 0.0 if last is None else (last.start_us + last.us) / 1e6


# -- the rehearsal ---------------------------------------------------------------------------------


def rehearse(plan: Plan, recording: Recording, deadline: float | None, progress: Progress) -> None:
    """Run a few steps of the target's GPU path on a shadow CUDA device, where ``--device auto``
    found no real one.

    Its recording stays only if it can be judged: enough steps completed, and the target did use the
    device. Of one that ran out of memory the snapshot stays, which says why.
    """
    if plan.device != "auto" or recording.device.accelerator or not plan.rehearsed:
        return
    wanted = _planned(plan, recording)
    if wanted is None:
        return
    took = max((row.start_us for row in recording.rows(StepRow)), default=0.0) / 1e6
    if deadline is not None and deadline - time.monotonic() < 2 * took:
        add_warning(recording, "the GPU path was not rehearsed: the time given is used up")
        return
    rehearsed = None
    stage(progress, "rehearsal")
    try:
        rehearsed = _apart(wanted, deadline, progress, lambda text: None)
        why = unfit(rehearsed)
    except AuditProblem as problem:
        why = _our_limit(problem.message) or problem.message
    interrupted = rehearsed is not None and rehearsed.manifest["outcome"] == "interrupted"
    if rehearsed is not None and interrupted:
        _interrupted(recording, rehearsed, "rehearsal of the GPU path")
    elif why:
        recording.manifest["gpu_unused"] = rehearsed is not None and bool(_unused(rehearsed))
        if rehearsed is not None:
            recording.manifest["cuda_in_worker"] = _frames_in_worker(rehearsed)
        add_warning(recording, f"the GPU path could not be rehearsed: {why}")
    if rehearsed is not None and why and _explained(rehearsed):
        _keep_only_snapshot(rehearsed)
    elif rehearsed is None or why:
        shutil.rmtree(wanted.folder, ignore_errors=True)
        return
    else:
        rerun(wanted, [rehearsed], deadline, progress, alone)
        replay_nonfinite(wanted, rehearsed, deadline, progress)
    keep_sources(recording, rehearsed)
    if not why and not interrupted:
        _on_null(wanted, recording, rehearsed, deadline, progress)


def _on_null(
    wanted: Plan,
    recording: Recording,
    rehearsed: Recording,
    deadline: float | None,
    progress: Progress,
) -> None:
    ended = null_run.beside(wanted, recording, rehearsed, deadline, progress)
    if ended is not None:
        _interrupted(recording, ended, "run on the null device")


def _planned(plan: Plan, recording: Recording) -> Plan | None:
    """The rehearsal of a target that completed, or of the steps before it failed; None where there
    are none.
    """
    outcome, failed = recording.manifest["outcome"], sum(counted(recording.folder).values())
    if recording.rows(NonfiniteRow):  # the replay on the CPU tells of it, once
        plan = replace(
            plan, rehearsed=tuple(part for part in plan.rehearsed if part != NonfiniteRow.part)
        )
    if outcome == "completed":
        steps = whole_cycles(
            _plain_us(recording, "quiet"), REHEARSED_STEPS, plan.steps, REHEARSED_SLOWER
        )
        if steps > REHEARSED_STEPS and prolonged(steps) not in recording.manifest["warnings"]:
            add_warning(recording, prolonged(steps))
        return plan.rehearsal(steps)
    again = recording.manifest.get("rerun") or {}
    steps = min(failed, again.get("steps", failed))
    return plan.rehearsal().fitted(steps) if outcome in FAILED and steps >= LEAST_RERUN else None


def _plain_us(recording: Recording, pass_name: str) -> list[float]:
    """Host's time of a pass's steps in us, without what they waited for a processor."""
    rows = (row for row in recording.rows(StepRow) if row.pass_name == pass_name)
    return [row.us - row.queued_us for row in rows]


def _frames_in_worker(rehearsed: Recording) -> list[dict[str, str | int]] | None:
    """Where a worker process of a loader asked for CUDA, which ended the rehearsal: its frames,
    outermost first. None where that is not what happened.
    """
    said = str((rehearsed.manifest.get("error") or {}).get("message", ""))
    if FORKED not in said or "DataLoader worker" not in said:
        return None
    return [
        {"file": found[1], "line": int(found[2])}
        for found in itertools.islice(_FRAME.finditer(said), MOST_FRAMES)
    ]


def _explained(rehearsed: Recording) -> bool:
    return (
        rehearsed.manifest["outcome"] == "oom"
        and not limit_of(rehearsed)
        and rehearsed.snapshot is not None
    )


def _keep_only_snapshot(rehearsed: Recording) -> None:
    """Leave nothing from which a rule would judge the steps: there are too few."""
    for part in rehearsed.folder.glob("*.jsonl"):
        if part.stem != SITES:
            part.unlink()


def unfit(rehearsed: Recording) -> str:
    """Why a rehearsal cannot be judged; empty if it can."""
    manifest = rehearsed.manifest
    steps = sum(row.pass_name == "loud" for row in rehearsed.rows(StepRow))
    planned = {row["name"]: row["steps"] for row in manifest.get("planned", ())}
    limit = limit_of(rehearsed)
    if limit:
        return limit
    if manifest["outcome"] == "oom":
        return (
            f"it runs out of memory after {steps} steps: "
            f"{(manifest.get('error') or {}).get('message', '')}"
        )
    if steps < min(LEAST_REHEARSED, planned.get("loud", LEAST_REHEARSED)):
        said, where = raised(rehearsed.manifest)
        ours = _our_limit(said, where)
        ended = f"it ended after {steps} step{'s' * (steps != 1)}"
        return f"{ended}; {ours}" if ours else f"{ended} ({said.removesuffix(': ')}{where})"
    return _unused(rehearsed)


def _unused(rehearsed: Recording) -> str:
    """What it means that steps completed and none ran anything on the device; empty if that is not
    so.
    """
    used = rehearsed.rows(DeviceUseRow)
    if not used or any(row.n for row in used):
        return ""
    return (
        "the target put nothing on the CUDA device that it was offered (its device is fixed to the "
        "CPU?)"
    )


def limit_of(rehearsed: Recording) -> str:
    """What the program asked for that the shadow cannot do, and where; empty if nothing."""
    ended = next(iter(rehearsed.rows(LimitRow)), None)
    if ended is None:
        return ""
    where = f" at {rehearsed.site(ended.at)}" if ended.at is not None else ""
    return f"{ended.reason}{where}"
