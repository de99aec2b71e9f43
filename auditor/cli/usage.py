"""How the command line answers mistakes: what is wrong, the way out, and exit code 2."""

import difflib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any

import click

from auditor.cli import console
from auditor.errors import AuditProblem, TargetFailed, TargetProblem, fault

EXIT_FOUND, EXIT_IMPOSSIBLE, EXIT_TARGET, EXIT_INTERRUPTED = 1, 2, 3, 130


_REPORT = "give report.json, or the folder that audit run wrote, which holds it"

MISSING = {
    "target": "say what to run: package.module:callable, path/to/file.py:callable, or a script "
    "such as train.py",
    "report": _REPORT,
    "paths": "give the folder that audit run wrote, a trace of torch.profiler, or a memory "
    "snapshot",
    "path": "give the folder that audit run wrote: audit view audits",
    "before": f"give two: audit compare BEFORE AFTER; {_REPORT}",
    "after": f"there is nothing to compare it with: audit compare BEFORE AFTER; {_REPORT}",
    "files": "give files of torch.save or safetensors, or a folder of them",
    "code": "say which rule: audit explain SYNC001; audit rules lists them all",
    "fault": "say which fault to plant, and at which step: --inject nan@12 (or inf, oom, kill)",
}
"""What to give, by the name of the parameter that is missing."""


STOPPING = ("SIGTERM", "SIGHUP")
"""Signals that end a command as Ctrl-C does: a cancelled job, ``timeout``, a closed terminal."""


@contextmanager
def handled(
    names: Sequence[str], handler: Callable[[int, Any], None], taken_over: Callable[[Any], bool]
) -> Iterator[None]:
    """Meanwhile these signals come to a handler of ours, on the main thread: those whose handler
    before is to be ``taken_over``.
    """
    main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name) for name in names if main and hasattr(signal, name)]
    before = {each: signal.getsignal(each) for each in numbers}
    taken = [each for each in numbers if taken_over(before[each])]
    for each in taken:
        signal.signal(each, handler)
    try:
        yield
    finally:
        for each in taken:
            earlier = before[each]
            signal.signal(each, earlier if earlier is not None else signal.SIG_DFL)


class AuditGroup(click.Group):
    """Turns :class:`AuditProblem`, and what the disk refuses, into one sentence and exit code 2.

    So does it a fault of ours, which must not look like a finding (exit code 1). ``--debug`` shows
    where it came from.
    """

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run, whatever streams the caller has left us."""
        # closed: the interpreter has found no file there
        if None in (sys.stdin, sys.stdout, sys.stderr):
            from auditor.cli import console

            console.secure_streams()
        try:
            return super().main(*args, **kwargs)
        except OSError as error:  # a page of help that stdout did not take
            from auditor.cli import console

            console.to_nowhere(sys.stdout)
            sys.exit(say_problem(error))

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            # what would end us leaves a report on what was recorded, as Ctrl-C does
            # (a signal that is ignored, as under nohup, stays so)
            with handled(
                STOPPING, signal.default_int_handler, lambda before: before is not signal.SIG_IGN
            ):
                result = super().invoke(ctx)
                _need_stdout()
                return result
        except SystemExit as end:
            if not end.code:
                _need_stdout()
            raise
        except click.MissingParameter as missing:
            name = missing.param.name if missing.param is not None else None
            raise click.UsageError(
                MISSING.get(name or "", missing.format_message()), missing.ctx
            ) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt as stopped:
            from auditor.cli import console

            console.say(f"audit: interrupted{f'; {stopped}' if stopped.args else ''}", err=True)
            ctx.exit(EXIT_INTERRUPTED)
        except Exception as error:
            ctx.exit(say_problem(error))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a TARGET in its place, or a misspelt one, is told what to write."""
        word = args[0]
        if word == "help":
            raise click.UsageError(f"did you mean audit {shlex.join([*args[1:2], '--help'])}?", ctx)
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            raise click.UsageError(
                f"there is no command {word!r}: {_meant(word, args, list(self.commands))}", ctx
            )
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order in which they are used."""
        return list(self.commands)


def _need_stdout() -> None:
    """End with exit code 2 where a part of the result could not be written to stdout."""
    console = sys.modules.get("auditor.cli.console")  # not imported: nothing was written
    if console is not None and console.UNWRITTEN:
        reason = console.UNWRITTEN.pop()
        console.UNWRITTEN.clear()
        console.say(f"audit: stdout cannot be written: {reason}", err=True)
        sys.exit(EXIT_IMPOSSIBLE)


def say_problem(error: Exception) -> int:
    """Say why a command ends, from inside its ``except``; the exit code."""
    from auditor.cli import console  # here: it is heavy beside a page of help

    if "--debug" in sys.argv:
        import traceback

        console.show(traceback.format_exc(), err=True)
        if isinstance(error, AuditProblem) and error.detail:
            console.show(error.detail, err=True)
    problem = _as_problem(error)
    console.say(f"audit: {problem.message}", err=True)
    if problem.hint:
        console.say(f"       {problem.hint}", err=True)
    raised = isinstance(error, TargetFailed) or (isinstance(error, TargetProblem) and error.raised)
    return EXIT_TARGET if raised else EXIT_IMPOSSIBLE


def _as_problem(error: Exception) -> AuditProblem:
    """What an exception says to the user."""
    if isinstance(error, AuditProblem):
        return error
    if isinstance(error, TargetFailed):
        return AuditProblem(str(error))
    if isinstance(error, FileNotFoundError) and not _is_somewhere():
        return AuditProblem("the working directory is gone", "change to one that exists")
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return AuditProblem(f"{os.fsdecode(error.filename)}: {error.strerror}")
    from auditor.runs.target import hidden

    if (problem := hidden(error)) is not None:
        return problem
    said = fault(error).splitlines()[0]
    return AuditProblem(
        f"this is a fault of the auditor's own: {said}", "--debug shows where; please report it"
    )


def _is_somewhere() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _meant(word: str, args: Sequence[str], commands: list[str]) -> str:
    close = difflib.get_close_matches(word.lower(), commands, n=1, cutoff=0.5)
    if ":" in word or word.endswith(".py"):
        return f"did you mean audit run {shlex.join(args)}?"
    if os.path.exists(word):
        return f"did you mean audit analyze {shlex.join(args)}?"
    return f"did you mean {close[0]}?" if close else f"it is one of {', '.join(commands)}"


class PlainCommand(click.Command):
    """A command whose unknown options are answered with a near one, or with none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            near = _near(problem)
            options = ", ".join(
                sorted(
                    name
                    for each in self.get_params(ctx)
                    for name in each.opts
                    if name.startswith("--")
                )
            )
            raise click.UsageError(
                f"{problem.option_name} is no option of audit "
                f"{self.name}{near or f'; it has {options}'}",
                ctx,
            ) from None


class TargetCommand(click.Command):
    """A command that runs a TARGET, whose own arguments stand after ``--``."""

    def invoke(self, ctx: click.Context) -> Any:
        """Call it with TARGET as plans and reports have it: ``-m package.module`` for a module."""
        if ctx.params.pop("module"):
            ctx.params["target"] = f"-m {ctx.params['target']}"
        return super().invoke(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; an option that we do not have may be the program's own."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            where = next(
                (
                    n
                    for n, word in enumerate(given)
                    if word.partition("=")[0] == problem.option_name
                ),
                0,
            )
            said = f"{problem.option_name} is no option of audit {self.name}{_near(problem)}"
            if any(not word.startswith("-") for word in given[:where]):
                right = shlex.join([*given[:where], "--", *given[where:]])
            else:  # the target comes after it, and it is unknown which words are the option's value
                right = f"TARGET -- {given[where]} ..."
            raise click.UsageError(
                f"{said}; put `--` before the program's arguments: audit {self.name} {right}", ctx
            ) from None


def _near(problem: click.NoSuchOption) -> str:
    close = difflib.get_close_matches(
        problem.option_name, problem.possibilities or (), n=1, cutoff=0.7
    )
    return f" (did you mean {close[0]}?)" if close else ""


# -- deferred signals ------------------------------------------------------------------------------
# What is recorded is judged before a command ends: the first signal that asks it to is heard, and
# obeyed when the report is there.


class Ending:
    """Whether the user asked for the end."""

    def __init__(self) -> None:
        self.asked = False

    def is_asked(self) -> bool:
        """Whether the end was asked for; a function to pass on."""
        return self.asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        with suppress(RuntimeError):  # the signal came while we were writing
            console.say(
                "audit: interrupted; the report is finished first (once more ends at once)",
                err=True,
            )

    def after_the_report(self) -> AbstractContextManager[None]:
        """Ctrl-C, SIGTERM, SIGHUP are only noted; the second raises :class:`KeyboardInterrupt`."""
        return handled(("SIGINT", *STOPPING), self._on_signal, callable)
