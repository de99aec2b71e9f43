"""Reads a stranger's file in a process of its own: what kills the reader costs that file, and
nothing else.

A file can be written so that a library in C dies of it (a key of nested tuples overflows the stack
where it is hashed), takes all memory, or never ends. The child has limits for memory and time, can
write no file and gain no privilege; its result comes back as a pickle of the classes that the
caller names.
"""

import contextlib
import ctypes
import faulthandler
import io
import os
import pickle
import select
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

T = TypeVar("T")

MEMORY = 2 << 30
"""Bytes of memory that a reader may take, beyond what the process has."""

SECONDS = 60.0
"""Time for a file's reader; more for each byte of a large one (:data:`BYTES_A_SECOND`)."""

BYTES_A_SECOND = 1_000_000
"""Bytes of a file read in a second at least: those of 100,000 small tensors, machine busy."""

PIPE = 1 << 20

DIES_WITH_PARENT, NO_NEW_PRIVILEGES = 1, 38
"""What ``prctl`` of Linux is asked for."""

OUT_OF_TIME = "reading it took longer than {seconds:.0f} s: it was given up"
OUT_OF_MEMORY = "reading it takes more memory than its content can need"


class ReaderDied(Exception):
    """The process that read the file came to no result; the message is a sentence for the user."""


def seconds_for(size: int) -> float:
    """Seconds that a file of this size in bytes may take."""
    return SECONDS + size / BYTES_A_SECOND


def isolated(
    work: Callable[[], T],
    classes: tuple[type, ...] = (),
    *,
    seconds: float = SECONDS,
    cpu: float | None = None,
    memory: int | None = MEMORY,
) -> T:
    """What ``work`` returns, made in a child: plain data and instances of ``classes``.

    Raises what ``work`` raises if it is of ``classes``, else :class:`ReaderDied`. Where a
    process cannot be forked, ``work`` runs in this one. ``cpu`` is the time of a processor, of all
    ``seconds``. Without ``memory`` the child has no limit but of time: it reads nothing itself, and
    only holds what should not be imported here.
    """
    if not hasattr(os, "fork"):
        return work()
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads; the child starts none and waits for none
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(read)
        _work(work, classes, write, cpu or seconds, memory)
    os.close(write)
    try:
        answer = _answer(read, seconds)
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(read)
        _, status = os.waitpid(child, 0)
    return cast("T", _result(answer, status, classes, cpu or seconds))


def _work(
    work: Callable[[], Any], classes: tuple[type, ...], write: int, cpu: float, memory: int | None
) -> None:
    """In the child: never returns."""
    try:
        _quiet()
        if memory is not None:
            _limit(int(cpu) + 1, memory)
        try:
            answer = b"+" + pickle.dumps(work())
        except MemoryError:
            answer = b"-" + OUT_OF_MEMORY.encode()
        except BaseException as error:  # whatever it is, the parent goes on with the next file
            known = type(error) in classes
            answer = (
                b"!" + pickle.dumps(error)
                if known
                else b"-" + f"its reader failed ({type(error).__name__})".encode()
            )
        with os.fdopen(write, "wb") as pipe:
            pipe.write(answer)
    except BaseException:
        pass
    finally:
        os._exit(0)  # no handlers, no buffers of the parent's


def _quiet() -> None:
    """It ends with its parent, and whatever a library in C says when it dies is not shown."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    faulthandler.disable()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _limit(seconds: int, memory: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        _lower(resource.RLIMIT_CPU, seconds)
        with open("/proc/self/statm", encoding="ascii") as sizes:
            taken = int(sizes.read().split()[0]) * resource.getpagesize()
        _lower(resource.RLIMIT_AS, taken + memory)


def _lower(kind: int, cap: int) -> None:
    import resource

    hard = resource.getrlimit(kind)[1]
    highest = cap + 1  # at the hard limit of time a process is killed without a word of why
    if hard != resource.RLIM_INFINITY:
        cap, highest = min(cap, hard), min(highest, hard)
    resource.setrlimit(kind, (cap, highest))


def _answer(read: int, seconds: float) -> bytes:
    """All that the child writes. Raises :class:`ReaderDied` if it takes too long."""
    parts: list[bytes] = []
    end = time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        if left <= 0 or not select.select([read], [], [], left)[0]:
            raise ReaderDied(OUT_OF_TIME.format(seconds=seconds))
        part = os.read(read, PIPE)
        if not part:
            return b"".join(parts)
        parts.append(part)


class _Known(pickle.Unpickler):
    """Admits the classes that the caller named."""

    def __init__(self, raw: bytes, classes: tuple[type, ...]) -> None:
        super().__init__(io.BytesIO(raw))
        self._known = {(each.__module__, each.__qualname__): each for each in classes}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._known:
            raise ReaderDied("its reader gave no answer")
        return self._known[module, name]


def _result(answer: bytes, status: int, classes: tuple[type, ...], cpu: float) -> Any:
    kind, content = answer[:1], answer[1:]
    if kind == b"+":
        return _Known(content, classes).load()
    if kind == b"!":
        raise _Known(content, classes).load()
    if kind == b"-":
        raise ReaderDied(content.decode())
    died = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if died == signal.SIGXCPU:
        raise ReaderDied(OUT_OF_TIME.format(seconds=cpu))
    raise ReaderDied(
        f"its reader died of it ({signal.Signals(died).name if died else 'no answer'})"
    )
