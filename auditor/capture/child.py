"""The recording child: takes the target through the passes and writes the recording."""

from __future__ import annotations

import atexit
import gc
import importlib
import multiprocessing.connection as connections
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from traceback import StackSummary, TracebackException, extract_tb, format_list, walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from auditor.capture.instruments.user_frames import LOADER, OWN
from auditor.capture.process import OpenedConfigs, ProgressPipe, leave_at_once, set_up, undisturbed
from auditor.errors import TargetProblem, fault, signal_told, traceback_of, type_of, words_of
from auditor.model.devices import CPU, SHADOW
from auditor.recordings.folder import SCHEMA, RecordingWriter
from auditor.runs import program
from auditor.runs import target as targets
from auditor.runs.left_without_cuda import ON_CPU, left_without_cuda
from auditor.runs.plan import Change, Plan, UntilOom
from auditor.runs.schedule import ALIKE, LONG_STEPS

if TYPE_CHECKING:
    from auditor.capture.instruments.user_frames import Frames
    from auditor.capture.probes.base import Context
    from auditor.capture.session import Session
    from auditor.capture.target.script_steps import StepFinder


STOPPED_AT = 3
"""Frames in the report on a target that Ctrl-C stopped."""


def without_own(told: TracebackException) -> TracebackException:
    """Remove frames of ours from the traceback in place; an error of our own stays whole."""
    todo, seen = [told], set()
    while todo:
        each = todo.pop()
        seen.add(id(each))
        theirs = [frame for frame in each.stack if not frame.filename.startswith(OWN)]
        if theirs:
            each.stack = StackSummary.from_list(theirs)
        related = (each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ()))
        todo += [other for other in related if other is not None and id(other) not in seen]
    return told


def located(error: BaseException, is_user: Callable[[str], bool], cwd: str) -> dict[str, Any]:
    """Where, in the user's own code, and when an error came up. Runs no code of the program's."""
    # which of several processes failed first
    found: dict[str, Any] = {"time_us": time.time_ns() // 1000}
    theirs = [frame for frame in extract_tb(error.__traceback__) if is_user(frame.filename)]
    if theirs:
        last = theirs[-1]
        found.update(file=os.path.join(cwd, last.filename), line=last.lineno, function=last.name)
    return found


def words(error: BaseException, is_user: Callable[[str], bool]) -> dict[str, str]:
    """Message and traceback of an error; of a target that was stopped, the user's own lines."""
    if not isinstance(error, KeyboardInterrupt):
        message = words_of(error)
        how_known = any(each in message for each in ("by signal", "exit code"))
        lost = () if how_known else lost_workers(error)
        return {
            "message": "; ".join([*filter(None, [message]), *lost]),
            "traceback": traceback_of(error, without_own),
        }
    theirs = [frame for frame in extract_tb(error.__traceback__) if is_user(frame.filename)]
    told = "".join(format_list(theirs[-STOPPED_AT:]))
    return {"message": words_of(error) or "it was stopped (Ctrl-C or SIGTERM)", "traceback": told}


ENDS_S = 1.0
"""How long a worker may take from closing its connections, when it is missed, to its end."""


def lost_workers(error: BaseException) -> Iterator[str]:
    """How each loader worker ended that is gone where a loader raised ``error``.

    A worker that the kernel kills while the loader reads from it is missed by a
    ``ConnectionResetError`` or ``EOFError``, which says nothing of it: torch asks for ended
    processes a moment too early.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if LOADER not in frame.f_code.co_filename:
            continue
        with suppress(Exception):  # no loader of torch's, or one whose workers are kept elsewhere
            workers = [each for each in frame.f_locals["self"]._workers if each.pid is not None]
            if isinstance(error, (OSError, EOFError)):
                connections.wait([each.sentinel for each in workers], ENDS_S)
            for each in workers:
                each.join(ENDS_S if connections.wait([each.sentinel], 0) else 0)
                if each.exitcode:
                    how = f"itself, with exit code {each.exitcode}"
                    if each.exitcode < 0:
                        how = signal_told(-each.exitcode)
                    yield f"a worker of the loader (process {each.pid}) was ended by {how}"
            return


RECORDS = False
"""Whether this process was started to be recorded. A watch that its program asks for is not begun."""


class Recorder:
    """One recording in the making: the manifest, the session and how it ended."""

    in_process = False
    """Whether it is made in the user's own process, which cannot be started again."""

    def __init__(self, plan: Plan, address: targets.Address | None = None) -> None:
        self.plan = plan
        self.folder = Path(plan.folder)
        self.address = address or targets.parse(plan.target)
        self.kind: targets.Kind = "callable"
        self.writer = RecordingWriter(
            self.folder, None if plan.copied is None else plan.copied.spelled
        )
        self.cwd = os.getcwd()  # the target may leave it, or remove it
        self.pipe = ProgressPipe(plan.progress_fd)
        self.warnings: list[str] = []
        # until something better is known: what is on disk must be true if we vanish now
        self.outcome = "killed"
        self.error: dict[str, Any] | None = None
        self.exhausted = False
        self.finished = False
        self.environment: dict[str, str] = {}
        self.session: Session | None = None
        self.context: Context | None = None
        self.opened = OpenedConfigs()
        self._frames: Frames | None = None
        self._finder: StepFinder | None = None
        self._disarm_oom: Callable[[], None] = lambda: None

    # -- manifest ----------------------------------------------------------------------------------

    def save(self) -> None:
        """Write the manifest as things stand."""
        from auditor import __version__

        session = self.session
        ends = self._finder.ends if self._finder is not None else ""
        self.writer.save(
            {
                "schema": SCHEMA,
                "tool": {"name": "torch-step-audit", "version": __version__},
                "target": self.plan.target,
                "argv": list(
                    self.plan.args if self.plan.shown_args is None else self.plan.shown_args
                ),
                "cwd": self.cwd,
                "kind": self.kind,
                "target_files": self._user_files(),
                "configs": list(self.opened.files),
                "steps": self.plan.steps,
                "warmup": self.plan.warmup,
                "world_size": self.plan.world_size,
                "rank": self.plan.rank,
                "played": list(self.plan.played),
                "device": self.context.device.word if self.context is not None else CPU.word,
                **self._course(),
                "parts": list(self.plan.parts),
                "probes": session.failed if session is not None else {},
                "outcome": self.outcome,
                "error": self.error,
                "finished": self.finished,
                "exhausted": self.exhausted,
                "in_process": self.in_process,
                "environment": self.environment | ({"a step ends with": ends} if ends else {}),
                "sources": {},
                "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
                "warnings": self.warnings,
            }
        )
        if self.writer.lost and not self.writer.forked:
            self.pipe.lost(self.writer.lost)

    def _course(self) -> dict[str, Any]:
        if self.session is None:
            return {"passes": [], "planned": [], "spared": {}, "cut": {}}
        passes, planned = self.session.passes, self.session.schedule.planned
        fewer = {each.name: each.usual - each.done for each in passes if each.done < each.usual}
        why = {each.name: each.why for each in passes}
        return {
            "passes": [{"name": each.name, "steps": each.done} for each in passes],
            "planned": [{"name": each.name, "steps": each.steps} for each in planned],
            "spared": {name: n for name, n in fewer.items() if why[name] == ALIKE},
            "cut": {name: n for name, n in fewer.items() if why[name] == LONG_STEPS},
        }

    def _place(self) -> str:
        """The line that the program is at: `` (train.py:31)``; empty if none is known."""
        frame = self._frames.user_frame()[0] if self._frames is not None else None
        if self._frames is None or frame is None:
            return ""
        file = self._frames.spelled(frame.f_code.co_filename)
        return f" ({file.removeprefix(self.cwd + os.sep)}:{frame.f_lineno})"

    def _user_files(self) -> list[str]:
        if self._frames is None:
            return []
        files = {
            self._frames.user_file(each)
            for each in list(sys.modules.values())
            if isinstance(each, ModuleType)
        }
        return sorted(file for file in files if file is not None and file.endswith(".py"))

    # -- the run -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Record. Raises :class:`TargetProblem` when the target cannot be run at all."""
        self.opened.start()
        if self.plan.rehearses:  # takes no times: its collections and searches pass over torch
            gc.freeze()
        try:
            if self.address.kind == "script":
                self._run_script()
            else:
                self._run_object()
        finally:
            self._wind_up()

    def _prepare(self) -> None:
        """Torch was just imported: build the session, and let the probes see what is made."""
        # a target may import torch in its first step, or never: then the watch calls us from here
        if self.session is None:
            importlib.import_module("torch")
        if self.session is not None:
            return
        from auditor.capture.instruments.environment import device_of
        from auditor.capture.instruments.user_frames import Frames
        from auditor.capture.probes.base import Context
        from auditor.capture.probes.registry import select
        from auditor.capture.session import Session

        if self.plan.device in ("cuda", "null"):
            # says at once that there is none, before the user's program builds anything
            device_of(self.plan.device)
        if self.plan.played:
            from auditor.capture.target.played_world import PlayedWorld

            PlayedWorld().install()
        self._frames = Frames(self.writer, self._own_roots())
        # a real GPU is asked for when the first step begins
        at_first = SHADOW if self.plan.rehearses else CPU
        self.context = Context(
            self.writer, self._frames, device=at_first, plan=self.plan, warn=self._warn
        )
        on_null = self.plan.purpose_as(Change) is not None and self.plan.device == "null"
        if self.plan.purpose_as(UntilOom) is not None or on_null:
            from auditor.capture.probes.memory.snapshot import record_from_the_start

            record_from_the_start(self._warn)
        probes = select(self.plan.parts, self.context)
        self.session = Session(self.context, probes, self.pipe)
        self.session.install()

    def _own_roots(self) -> tuple[str, ...]:
        """An installed target's own package counts as the user's source."""
        if not self.address.module:
            return (os.path.dirname(os.path.abspath(self.address.path)),)
        import importlib.util

        try:
            spec = importlib.util.find_spec(self.address.module.partition(".")[0])
        except (ImportError, ValueError):
            return ()
        if spec is None or spec.origin is None or not spec.submodule_search_locations:
            return (spec.origin,) if spec is not None and spec.origin else ()
        return (os.path.dirname(spec.origin),)

    def _ready(self, target: Any) -> Session:
        """The first step begins: ask torch what device there is. Raises :class:`TargetProblem`."""
        try:
            self._prepare()
            assert self.session is not None and self.context is not None
            from auditor.capture.instruments.environment import describe, device_of

            self.context.device = device_of(self.plan.device)
            self.context.target = target
            if self.context.device.native:
                from auditor.capture.probes.memory.snapshot import limit_memory, watch_oom

                self._disarm_oom = watch_oom(self.folder, self.writer.spelled)
                limit_memory(self.plan.memory_limit)
            self.environment = describe(self.context.device)
            self.session.plan_passes()
            self.save()
        except TargetProblem:
            raise
        except Exception as error:  # must not look like an error of the program's step
            raise self.own_fault(error) from None
        return self.session

    def _warn(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _run_object(self) -> None:
        from auditor.capture.instruments.monkeypatch import AfterImport

        AfterImport("torch", self._prepare).install()
        found, _ = targets.load(self.address, self.plan.args)
        self.kind, step = targets.stepper(found, self.plan.target)
        session = self._ready(found if self.kind == "callable" else step)
        self._protected(lambda: self._loop(session, step))

    def _loop(self, session: Session, step: Callable[[], Any]) -> None:
        while not session.done and not self.writer.lost:
            session.begin()
            try:
                session.gave(step())
            except StopIteration:
                if self.kind != "generator":
                    raise
                self.exhausted = True
                session.broken()
                return
            if self.writer.forked:  # a copy of the process that fell out of the step: the rest of the run is the first one's
                os._exit(0)
            session.end()

    def _run_script(self) -> None:
        from auditor.capture.instruments.monkeypatch import AfterImport
        from auditor.capture.target.script_steps import StepFinder, StopAudit, Stopper

        self.kind = "script"
        stopper = Stopper(self._warn, self._wind_up)
        finder = self._finder = StepFinder(lambda: self._script_step(module, stopper), self._place)

        def on_torch() -> None:
            self._prepare()
            finder.install()

        AfterImport("torch", on_torch).install()
        # a package above it may import torch
        module, code = program.load(self.address, self.plan.args)

        def execute() -> None:
            try:
                exec(code, module.__dict__)
            except StopAudit:
                return
            except SystemExit as leaving:
                if self.session is None or not self.session.passes:
                    if (said := left_without_cuda(leaving)) is not None:
                        raise TargetProblem(said, ON_CPU) from None
                    if (asked := targets.wrong_arguments(leaving)) is not None:
                        raise program.refused_arguments(self.address, asked) from None
                if leaving.code not in (None, 0):
                    raise
            self.exhausted = self.session is None or not self.session.done

        try:
            self._protected(execute)
        finally:
            finder.uninstall()
        if self.error is None and finder.steps == 0:
            raise TargetProblem(
                f"{self.address.path or self.plan.target} ended without a single optimizer.step() of "
                "its own; steps in processes that it starts are not recorded",
                "give the arguments it needs after --, or name a function that takes one step: "
                "file.py:callable; for several processes give --nproc N and a script that reads RANK "
                "as torchrun sets it",
            )

    def _script_step(self, module: Any, stopper: Any) -> None:
        if not self._next_step(module):
            assert self.session is not None
            self.outcome = "completed" if self.session.done else self.outcome
            stopper.stop()

    def _next_step(self, target: Any) -> bool:
        """A step is over, where one was under way, and the next begins; False if none does."""
        session = self.session
        assert session is not None and self.context is not None
        if self.writer.forked:
            return True
        if not session.passes:
            self._ready(target)
        elif self.context.in_step:
            session.end()
        if session.done or self.writer.lost:
            return False
        session.begin()
        return True

    # -- how it ends -------------------------------------------------------------------------------

    def _protected(self, do: Callable[[], None]) -> None:
        """Run the user's code; what it raises becomes the recording's error."""
        try:
            do()
            self.outcome = "completed"
        except TargetProblem:
            raise
        except KeyboardInterrupt as error:
            self._failed("interrupted", error)
        except BaseException as error:
            if (problem := targets.hidden(error)) is not None:
                raise problem from None
            self._failed("raised", error)

    def interrupted(self, error: KeyboardInterrupt) -> None:
        """The run was stopped before its first step, or after its last."""
        with undisturbed():
            self.outcome = "interrupted"
            self._keep(error)
            self.save()

    def _failed(self, outcome: str, error: BaseException) -> None:
        with undisturbed():
            self.outcome = outcome
            under = self.session.under if self.session is not None else []
            if self.session is not None:
                self.session.broken()
            self._keep(error)
            raising = extract_tb(error.__traceback__)[-1:]  # the user's own line, or one below it
            own = any(self._is_user(frame.filename) for frame in raising)
            if under and outcome == "raised" and self.error is not None and not own:
                self.error["under"] = under

    def _is_user(self, file: str) -> bool:
        if self._frames is not None:
            return self._frames.is_user(file)
        return file.startswith(self.cwd + os.sep)

    def own_fault(self, error: Exception) -> TargetProblem:
        """What to say of an error of our own code, unless a function of the program's raised it."""
        *_, (frame, line) = traceback.walk_tb(error.__traceback__)
        code = frame.f_code
        if self._is_user(code.co_filename):
            message = (
                f"{code.co_name} in {code.co_filename}, line {line}, raised {fault(error)}; the program "
                "put it in place of a function that audit calls"
            )
            hint = "restore the original before the first step"
        else:
            message = f"the recorder itself failed ({fault(error)}); this is a bug of the auditor"
            hint = "--debug shows where"
        detail = ""
        with suppress(Exception):  # the program replaced what reads source lines
            detail = traceback_of(error)
        return TargetProblem(message, hint, detail)

    def not_run(self, problem: TargetProblem) -> None:
        """Write down that nothing could be recorded, and why."""
        self.error = {
            "problem": problem.message,
            "hint": problem.hint,
            "detail": problem.detail,
            "raised": problem.raised,
        }
        self.outcome = "not run"
        self.save()

    def _keep(self, error: BaseException) -> None:
        """Write down what is known of an error: first where it is, then its words, in which the
        program's own code runs.
        """
        self.error = {
            "type": type_of(error),
            "message": "",
            "traceback": "",
            **located(error, self._is_user, self.cwd),
        }
        if self.context is not None and self.session is not None and self.session.passes:
            self.error.update(step=self.context.step, pass_name=self.context.pass_name)
        self.save()
        self.error.update(words(error, self._is_user))
        if self.outcome == "raised" and self.session is not None:  # torch is there
            from auditor.capture.probes.memory.snapshot import is_oom

            self.outcome = "oom" if is_oom(error) else "raised"

    def _wind_up(self) -> None:
        """Put everything back and write what is known. May be called twice."""
        with undisturbed():
            if self.session is not None:
                self.session.uninstall()
            self._disarm_oom()
            self.opened.stop()
            self.finished = True
            self.writer.close()
            self.save()


def main() -> None:
    """``python -c BOOT ROOT PLAN``: record as the plan says; the manifest tells how it went."""
    global RECORDS  # noqa: PLW0603  # it is the process that is recorded
    RECORDS = True
    plan = Plan.from_json(sys.argv[2])
    for name in targets.OURS:
        with suppress(ImportError):  # isal is not on every platform
            importlib.import_module(name)
    sys.path[0] = os.getcwd()
    set_up(plan)
    recorder = Recorder(plan)
    recorder.save()
    if recorder.writer.lost:
        return
    if plan.copied is not None:
        atexit.register(leave_at_once, lambda: recorder.finished)  # before the program's: runs last
    try:
        recorder.run()
    except TargetProblem as problem:
        recorder.not_run(problem)
    except KeyboardInterrupt as error:
        recorder.interrupted(error)
    except Exception as error:  # our own fault: it must not look like the target's
        recorder.environment = {}
        recorder.not_run(recorder.own_fault(error))
    recorder.pipe.done()
    with suppress(Exception):  # the target's own by now: closed, or of another kind
        sys.stdout.flush()
