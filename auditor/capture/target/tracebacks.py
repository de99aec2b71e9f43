"""Tracebacks of the target's errors, as they would look without the auditor around and beneath the
user's code.
"""

from __future__ import annotations

import multiprocessing.connection as connections
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from traceback import StackSummary, TracebackException, extract_tb, format_list, walk_tb
from typing import Any

from auditor.capture.instruments.user_frames import LOADER, OWN
from auditor.errors import signal_told, traceback_of, words_of

STOPPED_AT = 3
"""Frames that are told of a target that Ctrl-C stopped."""


def without_own(told: TracebackException) -> TracebackException:
    """The same without frames of ours, in the errors that it came from too. Changed in place; an
    error of our own stays whole.
    """
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
    """Where an error came up, by its innermost frame of the user's own, and when. Runs no code of
    the program's.
    """
    # which of several processes failed first
    found: dict[str, Any] = {"time_us": time.time_ns() // 1000}
    theirs = [frame for frame in extract_tb(error.__traceback__) if is_user(frame.filename)]
    if theirs:
        last = theirs[-1]
        found.update(file=os.path.join(cwd, last.filename), line=last.lineno, function=last.name)
    return found


def raised_by(error: BaseException, is_user: Callable[[str], bool]) -> bool:
    """Whether the user's own line raised ``error``, and nothing that it called."""
    frames = extract_tb(error.__traceback__)
    return bool(frames) and is_user(frames[-1].filename)


def words(error: BaseException, is_user: Callable[[str], bool]) -> dict[str, str]:
    """Message and traceback of an error; of a target that was stopped, the user's own lines, for
    nothing went wrong in the others.
    """
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
"""How long a worker may take from closing its connections, by which it is missed, to its end, by
which it is known.
"""


def lost_workers(error: BaseException) -> Iterator[str]:
    """How each loader worker ended that is gone where a loader raised ``error``.

    A worker that the kernel kills while the loader reads from it is missed by a
    ``ConnectionResetError`` or ``EOFError``, which says nothing of it: torch asks who has ended a
    moment too early.
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
                    how = (
                        signal_told(-each.exitcode)
                        if each.exitcode < 0
                        else f"itself, with exit code {each.exitcode}"
                    )
                    yield f"a worker of the loader (process {each.pid}) was ended by {how}"
            return
