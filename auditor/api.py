"""Audits from Python: ``auditor.audit(step)``, and ``with auditor.watch():`` around a loop that runs
anyway (docs/python.md). Nothing heavy is imported before one of them is called.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from auditor import model
from auditor.runs import launchers

if TYPE_CHECKING:
    from typing import Self

    import pandas as pd

    from auditor.cli.rule_selection import Choice
    from auditor.evidence.table import Evidence
    from auditor.extensions.longrun.run import LongRun
    from auditor.runs.plan import Audit, Device, Plan

Codes = str | Sequence[str]
"""Codes or families of rules: ``"SYNC,MEM005"``, or a list of them."""

HERE = (
    "audited in the user's own process: the GPU path was not rehearsed, and objects that were made before "
    "the audit began (loaders, optimizers, models) were not seen being made"
)
"""What is said of every audit that had no process of its own."""

_LIMIT = "the watched block took {} steps of the audit, so that some passes are missing"


@dataclass(frozen=True, repr=False)
class Report(model.Report):
    """The report of an audit, as in report.json (docs/report-json.md); notebooks show it."""

    def __repr__(self) -> str:
        from auditor.amounts import count

        found = count(len(self.findings), "finding")
        return f"<auditor.Report of {self.run.target}: {self.run.outcome}, {found}>"

    def __str__(self) -> str:
        """As ``audit run`` prints it."""
        return self.render("terminal")

    def _repr_markdown_(self) -> str:
        return self.render("markdown")

    @overload
    def render(self, form: Literal["json"]) -> bytes: ...  # type: ignore[overload-overlap]

    @overload
    def render(self, form: str) -> str: ...

    def render(self, form: str) -> str | bytes:
        """The report as ``html``, ``json``, ``sarif``, ``junit``, ``github``, ``codequality``,
        ``markdown``, ``agent`` or ``terminal``.
        """
        from auditor.judging import catalogue

        rendered: str | bytes = catalogue.renderer(form).render(self)
        return rendered

    def to_pandas(self) -> pd.DataFrame:
        """The findings as a table, a row each (columns: docs/python.md). Needs pandas; raises
        :class:`auditor.errors.AuditProblem` without it.
        """
        from auditor.judging import catalogue

        try:
            table: pd.DataFrame = catalogue.reports("frames").findings(self)
        except ImportError as error:
            from auditor.errors import AuditProblem

            hint = "pip install 'torch-step-audit[all]'"
            raise AuditProblem(f"pandas cannot be loaded: {error}", hint) from None
        return table

    def at_least(self, severity: str) -> tuple[model.Finding, ...]:
        """Findings as bad as ``error``, ``warning`` or ``note``, or worse."""
        rank = model.Severity(severity).rank
        return tuple(
            each for each in self.findings if (each.severity or model.Severity.NOTE).rank <= rank
        )


def audit(
    step: str | Callable[..., Any],
    *,
    steps: int = 50,
    warmup: int = 5,
    device: Literal["auto", "cuda", "cpu", "rehearse", "null"] = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    here: bool | None = None,
) -> Report:
    """Run a training step, find what costs time and memory, and return the report.

    ``step`` is a TARGET as ``audit run`` takes it, or a function without arguments (or with one
    that counts steps: ``def step(i)``). A function that can be imported by its module and name runs
    in a process of its own, as with ``audit run``: the module is imported again there. Any other (a
    closure, a lambda, a bound method) runs here, ``steps`` times and more, and changes what it
    changes. ``here`` asks for one or the other. ``out`` keeps recording and report in a folder.

    A step that raises ends the audit: ``report.run.outcome`` and ``report.run.error`` say so.
    Raises :class:`auditor.errors.AuditProblem` if the audit cannot be done.
    """
    from auditor.errors import AuditProblem

    target = step if isinstance(step, str) else None if here else target_of(step)
    if not isinstance(step, str) and target is None:
        if here is False:
            raise AuditProblem("this function cannot be imported by its name in another process")
        if device not in ("auto", "cpu", "cuda"):
            raise AuditProblem(f"device={device!r} needs a process of its own")
        if timeout is not None:
            raise AuditProblem("timeout needs a process of its own: nothing ends a step here")
    elif here:
        raise AuditProblem("a TARGET runs in a process of its own: give the function instead")
    with _Work(select, ignore, out) as work:
        named = target or _name(step)
        planned = _planned(work.choice, work.folder, named, steps, warmup, device=device)
        if target is not None:
            return work.report(_recorded_apart(planned, timeout))
        assert not isinstance(step, str)
        return work.report(_recorded_here(planned.run, step), (HERE,))


def target_of(step: Callable[..., Any]) -> str | None:
    """The TARGET by which another process finds a function in its file; None without one."""
    name, module = getattr(step, "__qualname__", ""), getattr(step, "__module__", None) or ""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if not name or not isinstance(file, str) or not file.endswith(".py") or module == "__main__":
        return None
    found: Any = loaded
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not step or not os.path.isfile(file):
        return None
    return f"{module}:{name}" if _imported_from_here(module, file) else f"{file}:{name}"


def _imported_from_here(module: str, file: str) -> bool:
    """Whether the module's name leads to its file from here, or by what is installed."""
    stem = os.path.join(os.getcwd(), *module.split("."))
    near = (f"{stem}.py", os.path.join(stem, "__init__.py"))
    if os.path.realpath(file) in map(os.path.realpath, near):
        return True
    return f"{os.sep}site-packages{os.sep}" in file and not any(map(os.path.exists, near))


def _name(step: Any) -> str:
    module = getattr(step, "__module__", None) or type(step).__module__
    return f"{module}:{getattr(step, '__qualname__', None) or type(step).__qualname__}"


# -- watching --------------------------------------------------------------------------------------


class Watched:
    """A block under ``auditor.watch()``. ``report`` is there when the block has ended."""

    def __init__(self) -> None:
        self._report: Report | None = None

    @property
    def made(self) -> bool:
        """Whether the report is there."""
        return self._report is not None

    @property
    def report(self) -> Report:
        """The report. Raises ``RuntimeError`` inside the block."""
        if self._report is None:
            raise RuntimeError("the report is made when the watched block has ended")
        return self._report


@overload
def watch(
    *,
    every: None = None,
    steps: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
) -> AbstractContextManager[Watched]: ...


@overload
def watch(
    *,
    every: int,
    steps: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
    keep: int = 5,
    budget: float = 0.02,
    log_to: Any = None,
) -> LongRun: ...


def watch(
    *,
    every: int | None = None,
    steps: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
    keep: int = 5,
    budget: float = 0.02,
    log_to: Any = None,
) -> AbstractContextManager[Watched] | LongRun:
    """Audit the training loop in the block, in this process: its first ``steps`` steps (50), shared
    out among the passes, and found from its optimizers. What comes after them runs undisturbed.

    The first step of an optimizer begins the first of these. What the block raises passes through,
    and there is a report all the same. Raises :class:`auditor.errors.AuditProblem` if no
    optimizer stepped.

    With ``every`` it is a run of days (docs/watch.md): a look at ``steps`` steps (20) every N
    steps. The last ``keep`` reports are in ``out`` (``audits/watch``). ``budget`` is the share of
    the time that looks may add. ``log_to`` gets the number of findings: a function ``(name, value,
    step)``, a ``SummaryWriter``, ``"wandb"`` or ``"mlflow"``.
    """
    file = sys._getframe(1).f_code.co_filename
    if every is None:
        if (keep, budget, log_to) != (5, 0.02, None):
            from auditor.errors import AuditProblem

            raise AuditProblem("keep, budget and log_to are for a long run: give every=1000 too")
        many = 50 if steps is None else steps
        return watching(file, steps=many, device=device, select=select, ignore=ignore, out=out)
    return long_run(
        file,
        every,
        steps=steps,
        device=device,
        select=select,
        ignore=ignore,
        out=out,
        keep=keep,
        budget=budget,
        log_to=log_to,
    )


def long_run(
    file: str,
    every: int,
    *,
    steps: int | None = None,
    device: Device = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
    keep: int = 5,
    budget: float = 0.02,
    log_to: Any = None,
) -> LongRun:
    """As :func:`watch` with ``every``, for a loop in ``file``."""
    from auditor.cli import rule_selection
    from auditor.errors import AuditProblem
    from auditor.extensions.longrun.run import LongRun, Settings

    steps = LOOK_STEPS if steps is None else steps
    if steps < LEAST_WATCHED:
        raise AuditProblem(f"a look needs at least {LEAST_WATCHED} steps")
    if every <= steps:
        raise AuditProblem(f"every={every} leaves nothing between looks of {steps} steps")
    if keep < 1 or not 0 < budget <= 1:
        raise AuditProblem("keep is at least 1, and budget a share: more than 0, 1 at most")
    codes = _codes(select), _codes(ignore)
    choice = rule_selection.choose(*codes)
    folder = Path(WATCHED if out is None else out)
    ranks = launchers.launched(os.environ)
    if ranks is not None:
        folder /= f"rank{ranks.rank}"
    warmup = min(2, steps // 5)
    plan = _planned(choice, folder, "the watched run", steps, warmup, device=device).run
    plan = plan.fitted(steps)
    given = Settings(every, folder, plan, _own(file), codes, keep, budget, log_to, (HERE,))
    return LongRun(given)


LOOK_STEPS = 20
"""Steps of a look at a long run."""

WATCHED = "audits/watch"


@contextmanager
def watching(
    file: str,
    *,
    steps: int = 50,
    device: Device = "auto",
    select: Codes = (),
    ignore: Codes = (),
    out: str | os.PathLike[str] | None = None,
) -> Iterator[Watched]:
    """As :func:`watch`, for a loop in ``file``."""
    from auditor.capture import here
    from auditor.capture.instruments.user_frames import source_path
    from auditor.errors import AuditProblem

    watched = Watched()
    if steps < LEAST_WATCHED:
        raise AuditProblem(f"an audit needs at least {LEAST_WATCHED} steps")
    source_path(file)  # a cell: before the code around it, which has its number too
    with here.alone(), _Work(select, ignore, out) as work:
        named, warmup = "the watched block", min(5, steps // 5)
        plan = _planned(work.choice, work.folder, named, steps, warmup, device=device).run
        recorder = here.Here(plan.fitted(steps), _own(file))
        recorder.save()
        recorder.watch()
        error: BaseException | None = None
        try:
            yield watched
        except BaseException as raised:
            error = raised
            raise
        finally:
            recorder.leave(error)
            watched._report = _of_block(work, recorder, error)


LEAST_WATCHED = 6


def _of_block(work: _Work, recorder: Any, error: BaseException | None) -> Report | None:
    from auditor.errors import AuditProblem

    if recorder.session is None or not recorder.session.passes:
        if error is not None:
            return None
        raise AuditProblem(
            "the watched block took no step: no optimizer stepped in it",
            "auditor.audit(step) audits a function that takes one step",
        )
    said = (HERE, *((_LIMIT.format(recorder.short),) if recorder.short else ()))
    return work.report(recorder.sealed(), said)


def _own(file: str) -> str:
    return file if os.path.isfile(file) else ""


# -- what both do ----------------------------------------------------------------------------------


class _Work:
    """The rules to run, and the folder to write; removed at the end if the caller gave none."""

    def __init__(self, select: Codes, ignore: Codes, out: str | os.PathLike[str] | None) -> None:
        from auditor.cli import rule_selection

        self.choice: Choice = rule_selection.choose(_codes(select), _codes(ignore))
        self._out = None if out is None else Path(out)
        self._left = ExitStack()
        self.folder = Path()

    def __enter__(self) -> Self:
        from auditor.cli.run import claim

        if self._out is None:
            temporary = tempfile.TemporaryDirectory(prefix="audit-", ignore_cleanup_errors=True)
            self.folder = Path(self._left.enter_context(temporary))
        else:
            self.folder = claim(self._out, "")[0]
        return self

    def __exit__(self, *raised: object) -> None:
        self._left.close()

    def report(self, recording: Any, said: Sequence[str] = ()) -> Report:
        """Judge; with ``out`` write what ``audit run`` leaves."""
        from auditor.cli import write_results
        from auditor.evidence.table import Evidence
        from auditor.judging import build_report

        evidence: Evidence = Evidence(recording)
        judged = self.choice.judged(evidence)
        judged = dataclasses.replace(judged, warnings=(*judged.warnings, *said))
        if self._out is not None:
            judged = build_report.drawn(judged, evidence)
            write_results.write(judged, evidence, self.folder, (), tensorboard=True)
        fields = {each.name: getattr(judged, each.name) for each in dataclasses.fields(judged)}
        return Report(**fields)


def _planned(
    choice: Choice, folder: Path, target: str, steps: int, warmup: int, *, device: Device
) -> Audit:
    """What is to be recorded in ``folder`` for the rules."""
    from auditor.cli.run import with_parts
    from auditor.runs import plan as plans

    run = plans.Plan(
        target,
        (),
        steps,
        warmup,
        "auto" if device == "null" else device,
        str((folder / "recording").resolve()),
        (),
    )
    run = run.on_shadow(min(steps, plans.REHEARSED_STEPS)) if device == "rehearse" else run
    return with_parts(run, choice.rules)


def _codes(words: Codes) -> tuple[str, ...]:
    listed = words.split(",") if isinstance(words, str) else words
    return tuple(word.strip().upper() for word in listed if word.strip())


def _recorded_apart(audit: Audit, timeout: float | None) -> Any:
    from auditor.runs import null_run, stages

    prepared = null_run.prepared(audit)
    recording = stages.record(prepared, timeout, lambda *_: None, lambda _: None)
    if recording.manifest["outcome"] == "interrupted":
        raise KeyboardInterrupt
    return recording


def _recorded_here(plan: Plan, step: Callable[..., Any]) -> Any:
    from auditor.capture import here
    from auditor.runs import target

    code = getattr(getattr(step, "__func__", step), "__code__", None)
    file = code.co_filename if code is not None else ""
    with here.alone():
        recorder = here.Here(plan, _own(file))
        recorder.save()
        recorder.call(target.stepper(step, plan.target)[1])
    if recorder.outcome == "interrupted":
        raise KeyboardInterrupt
    return recorder.sealed()
