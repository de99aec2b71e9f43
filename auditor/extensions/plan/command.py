"""``audit plan``: what fits on which GPU, from re-runs of the program on a machine without one."""

from __future__ import annotations

import json
import time
from pathlib import Path

from auditor.cli import console, progress_display
from auditor.cli.usage import EXIT_INTERRUPTED, EXIT_TARGET
from auditor.errors import AuditProblem
from auditor.extensions.plan.planning import Planning
from auditor.extensions.plan.reruns import Failed, Reruns
from auditor.extensions.plan.result import PlanResult
from auditor.extensions.plan.table import lines
from auditor.model.gpus import Gpu, gpu_named
from auditor.runs import null_run
from auditor.runs import target as targets
from auditor.runs.plan import Device


class _Status:
    """What runs now, for the display: ``re-run 4 of about 12, batch x4, about 40 s left``."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._n = 0
        self._of = 0
        self._name = ""

    def tell(self, name: str, of: int) -> None:
        """The next re-run begins, of so many."""
        self._n, self._of, self._name = self._n + 1, of, name

    def __str__(self) -> str:
        done = self._n - 1
        said = f"re-run {self._n} of about {self._of}: {self._name}"
        if done < 1:
            return said
        each = (time.monotonic() - self._began) / (done + 0.5)
        return f"{said}, {progress_display.about(each * max(1, self._of - done))} left"


def run(
    *,
    target: str,
    gpu: tuple[str, ...],
    batch: str,
    world: int | None,
    device: str,
    budget: float,
    form: str,
    out: str | None,
    quiet: bool,
    debug: bool,
    args: tuple[str, ...],
) -> int:
    """Plan a target; returns the exit code."""
    targets.parse(target)
    gpus = _gpus(gpu)
    if out is not None and Path(out).is_dir():
        raise AuditProblem(f"--out {out} is a folder; it must be a file")
    played = _device(device)
    status = _Status()
    reruns = Reruns(target, args, played, gpus[0].key)
    planning = Planning(reruns, gpus, budget, status.tell, world=world, batch=batch)
    if not quiet:
        planning.say = lambda words: console.say(f"audit: {words}", err=True)
    try:
        with progress_display.working("plan", lambda: str(status), quiet=quiet):
            result = planning.make()
    except Failed as problem:
        if problem.ours:
            raise AuditProblem(f"nothing can be planned: {problem}") from None
        console.say(f"audit: nothing can be planned: {problem}", err=True)
        return EXIT_TARGET
    _deliver(result, form, out)
    if played == "rehearse" and not quiet:
        _advise()
    return EXIT_INTERRUPTED if result.interrupted else 0


def _gpus(names: tuple[str, ...]) -> tuple[Gpu, ...]:
    found = [gpu_named(name) for name in names or (null_run.DEFAULT_GPU,)]
    return tuple(dict.fromkeys(found))


def _device(asked: str) -> Device:
    """The device that plays the GPU."""
    lacking = null_run.lacking()
    if asked == "null" and lacking is not None:
        raise AuditProblem(f"--device null: {lacking.message}", lacking.hint)
    return "rehearse" if asked == "rehearse" or lacking is not None else "null"


def _deliver(result: PlanResult, form: str, out: str | None) -> None:
    """Print the table, or the JSON where no file takes it; then write the file."""
    table = [line.replace("\n", "\\n") for line in lines(result)]
    data = json.dumps(result.to_dict(), indent=2)
    if form == "terminal":
        for line in table:
            console.say(line)
    elif out is None:
        console.hand_over(data, form="json")
    if out is None:
        return
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        text = data if form == "json" else "\n".join(table)
        Path(out).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        if form == "json":
            console.hand_over(data, form="json")
        raise AuditProblem(f"{out} cannot be written: {error.strerror or error}") from None
    console.say(out)


def _advise() -> None:
    """How to have torch's own allocator in the place of the simulated one."""
    lacking = null_run.lacking()
    if lacking is not None:
        console.say(
            f"the null device, which runs torch's own CUDA code, is more exact: {lacking.message}"
            f" ({lacking.hint})",
            err=True,
        )
