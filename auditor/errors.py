"""Errors that the user sees as one sentence: what, where, and the way out."""

import signal
import traceback
from collections.abc import Callable


class AuditProblem(Exception):
    """The audit cannot be done; exit code 2. ``hint``: the way out, ``detail``: for ``--debug``."""

    def __init__(self, message: str, hint: str = "", detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.detail = detail


class TargetProblem(AuditProblem):
    """The target cannot be run: not found, not importable, not callable without arguments.
    ``raised``: its own code raised before the first step; exit code 3.
    """

    raised = False


class TargetFailed(Exception):
    """The target failed on its own; exit code 3. The message is one sentence."""


WORDS_LIMIT = 20_000
"""Characters of an exception's message that are kept."""


def plain(text: str, limit: int = WORDS_LIMIT) -> str:
    """At most ``limit`` characters as an exact ``str``; lone surrogates escaped."""
    length = str.__len__(text)
    kept = str.__getitem__(text, slice(0, limit)).encode("utf-8", "backslashreplace").decode()
    return kept if length <= limit else f"{kept} ... ({length:,} characters)"


def type_of(error: BaseException) -> str:
    """The name of an exception's class, whatever its metaclass makes of it."""
    return plain(type.__dict__["__name__"].__get__(type(error)), 200)


def words_of(error: BaseException, limit: int = WORDS_LIMIT) -> str:
    """What an exception says: never raises, and never more than ``limit`` characters.

    Its ``__str__`` is the program's own: it may raise, return something else than a ``str``, or 50
    MB.
    """
    try:
        return plain(str(error), limit)
    except BaseException as problem:  # also sys.exit() in __str__: it is only asked what it says
        return f"(it has no message: its __str__ raised {type_of(problem)})"


def fault(error: BaseException) -> str:
    """What went wrong, in one line: ``KeyError: 'gone'``."""
    said = words_of(error).partition("\n")[0][:200]
    return f"{type_of(error)}{': ' * bool(said)}{said}"


TRACE_LIMIT = 200_000
"""Characters of a traceback that are kept: its begin and its end."""


def traceback_of(
    error: BaseException,
    prepare: Callable[[traceback.TracebackException], object] = lambda told: None,
) -> str:
    """The traceback as text, changed by ``prepare``; if that fails, frames and :func:`fault`."""
    try:
        told = traceback.TracebackException.from_exception(error)
        prepare(told)
        text = "".join(told.format())
    except BaseException:
        # a message that is no str, a class without a module: whatever the program made of its error
        text = "".join(traceback.format_tb(error.__traceback__)) + fault(error) + "\n"
    half = TRACE_LIMIT // 2
    whole = (
        text
        if len(text) <= TRACE_LIMIT
        else f"{text[:half]}\n... ({len(text):,} characters)\n{text[-half:]}"
    )
    return plain(whole, len(whole))


def signal_told(number: int) -> str:
    """The name of the signal that ended a process, and its usual sender."""
    name = signal.Signals(number).name if number in set(signal.Signals) else str(number)
    return f"{name} (the kernel's out-of-memory killer does this)" if name == "SIGKILL" else name
