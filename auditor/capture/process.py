"""The recording child's process: what is set before torch is imported and the target begins."""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import functools
import json
import os
import random
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import getpid, write  # ours also where a target puts its own in os
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any
from urllib.parse import unquote, urlsplit

from auditor.capture.instruments.monkeypatch import AfterImport, Patches
from auditor.capture.instruments.user_frames import LOADER, OWN, outwards
from auditor.capture.probes.reproduce.sources import SOURCES
from auditor.recordings.writer import identity_of
from auditor.runs.launchers import told_by_torchrun
from auditor.runs.plan import JOURNAL, OUTSIDE, Copied, Plan, Trial
from auditor.runs.repeat import Repeat
from auditor.syntax.config_files import MOST_FILES, suffix_of

RAISING = ("SIGCHLD", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR2", "SIGHUP", "SIGTERM")
"""Signals that programs and libraries handle in Python."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """While the end is written down, no Python handler runs. Only in the main thread."""
    held: list[tuple[int, Any]] = []
    try:
        for number in _numbers():
            handler = signal.getsignal(number)
            if callable(handler):
                held.append((number, handler))
                signal.signal(number, _nothing)
        yield
    finally:
        for number, handler in held:
            with suppress(ValueError, OSError):
                if signal.getsignal(number) is _nothing:
                    signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler that keeps a signal from doing anything."""


def _numbers() -> Iterator[int]:
    try:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except (ValueError, TypeError):  # not the main thread, or a handler that is none of Python's
        return
    for name in RAISING:
        number = getattr(signal, name, None)
        if number is not None:
            yield number


class ChildSignal:
    """Keeps a handler of SIGCHLD from raising in the auditor's own code, between steps and inside
    of probes.

    torch's handler raises in the main thread, wherever it is, when a loader's worker has died. An
    error there would be taken for the auditor's. In the program's own code, and in torch's loader,
    it raises as ever; a worker that died while our code ran is found by the loader itself, as it
    waits for the next batch.
    """

    def __init__(self) -> None:
        self._theirs: Callable[[int, FrameType | None], Any] | None = None

    def look(self) -> None:
        """See whether there is a handler by now, and stand before it; once per step."""
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
        if callable(handler) and handler != self._heard:
            with suppress(ValueError):  # a step that runs in another thread
                signal.signal(signal.SIGCHLD, self._heard)
                self._theirs = _behind(handler)

    def stop(self) -> None:
        """Leave the handler as it was. May be called twice."""
        if self._theirs is not None and signal.getsignal(signal.SIGCHLD) == self._heard:
            with suppress(ValueError):
                signal.signal(signal.SIGCHLD, self._theirs)
        self._theirs = None

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._theirs is not None and not _in_own_code(frame):
            self._theirs(number, frame)


def _behind(handler: Callable[..., Any]) -> Callable[..., Any] | None:
    """The program's handler: two of ours that stood before each other would call in a circle."""
    owner = getattr(handler, "__self__", None)
    return owner._theirs if isinstance(owner, ChildSignal) else handler


def _in_own_code(frame: FrameType | None) -> bool:
    """True if the innermost frame of neither a library nor torch's loader is ours."""
    for each in outwards(frame):
        file = each.f_code.co_filename
        if file.startswith(OWN):
            return True
        if LOADER in file or not (
            "site-packages" in file or file.startswith((os.path.dirname(os.__file__), "<"))
        ):
            return False
    return False


Handler = Callable[[str, tuple[Any, ...]], None]
"""Is given an event and its arguments; what it raises fails what the program was about to do."""

_HANDLERS: dict[str, tuple[Handler, ...]] = {}
_BEGUN: list[bool] = []


def hear(events: Iterable[str], handler: Handler) -> None:
    """Give these events to ``handler`` from now on, after those that hear them already."""
    for event in events:
        _HANDLERS[event] = (*_HANDLERS.get(event, ()), handler)
    if not _BEGUN:
        _BEGUN.append(True)
        sys.addaudithook(_heard)


def ignore(handler: Handler) -> None:
    """Give it no event any more. May be called twice."""
    for event, handlers in list(_HANDLERS.items()):
        left = tuple(each for each in handlers if each != handler)
        if left:
            _HANDLERS[event] = left
        else:
            del _HANDLERS[event]


def _heard(
    event: str,
    args: tuple[Any, ...],
    # Bound here: when the interpreter ends, names of modules are gone before hooks are.
    handlers_of: Callable[[str], tuple[Handler, ...] | None] = _HANDLERS.get,
) -> None:
    handlers = handlers_of(event)
    if handlers is not None:
        for handler in handlers:
            handler(event, args)


# -- opened files ----------------------------------------------------------------------------------
# Notes which configuration files the target reads, by the interpreter's own audit events: no
# function is replaced.
#
# An event that is none of ours takes 60 ns; a small training step with a data loader makes 8 of them.


class OpenedConfigs:
    """Files opened for reading while it watches."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self._watching = False

    def start(self) -> None:
        """Watch from now on."""
        self._watching = True
        hear(("open",), self._heard)

    def stop(self) -> None:
        """Hear nothing any more."""
        self._watching = False
        ignore(self._heard)

    def _heard(self, event: str, args: tuple[object, ...]) -> None:
        if not self._watching or len(args) < 2:  # anybody may raise an event of this name
            return
        path, mode = args[0], args[1]
        if not isinstance(path, str) or (
            isinstance(mode, str) and (not mode.startswith("r") or "+" in mode)
        ):
            return
        try:  # what is raised here would fail the user's open()
            if suffix_of(path) and len(self.files) < 4 * MOST_FILES:
                path = os.path.abspath(path)
                if path not in self.files:
                    self.files.append(path)
        except Exception:
            self._watching = False


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

CROWD = 100_000
"""Entries of a linked folder that are linked one by one, at most, for a change in it."""

LARGE = 1 << 30
"""Bytes of a file that is copied at most because it is opened to be changed in place: a data set
that ``numpy.memmap`` opens so by default is not meant to be changed."""

_REPLACED = {
    "os.remove": (0,),
    "os.mkdir": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
"""Events that change an entry of a folder (by the place of its path among the arguments)."""

_STARTED = {"subprocess.Popen": 1, "os.posix_spawn": 1, "os.exec": 1, "os.system": 0}
"""Events that start another program, by the place of its command line among the arguments."""

_CHANGED = {"os.truncate", "os.chmod", "os.rmdir", "os.chdir", "shutil.rmtree"}
"""Events that change what their first argument leads to, or go there (``chdir``)."""


@dataclass(frozen=True)
class Writer:
    """A writer's path: by ``place`` or ``keyword``; ``modes``: the next argument is a mode."""

    place: int
    keyword: str
    modes: bool = False


WRITERS = {
    "torch": {
        "save": Writer(1, "f"),
        "jit.save": Writer(1, "f"),
        "jit.RecursiveScriptModule.save": Writer(1, "f"),
        "autograd.profiler.profile.export_chrome_trace": Writer(1, "path"),
    },
    "safetensors.torch": {"save_file": Writer(1, "filename")},
    "safetensors.numpy": {"save_file": Writer(1, "filename")},
    "h5py": {"File.__init__": Writer(1, "name", modes=True)},
}
"""Functions that write from C++, C or Rust without opening a file in Python."""


def enter(copied: Copied, spared: str) -> None:
    """Import from the copy, and shelter the original from this process; ``spared`` is a folder of
    the auditor's own. An environment inside the project stays where it is.
    """
    sys.path[:] = [moved(each, copied) for each in sys.path]
    WriteGuard(copied, spared).install()


def moved(entry: str, copied: Copied) -> str:
    """An entry of ``sys.path`` as it is in the copy."""
    installed = "site-packages" in entry or entry.startswith(sys.prefix + os.sep)
    return entry if installed else copied.moved(entry)


class WriteGuard:
    """Watches for writes that would reach the original of a copy.

    A link on the way to what is written is cut first: a linked folder becomes a folder of links, a
    linked file a copy. What is written to the original by its absolute path (``torch.save``: to any
    path outside) is first copied to ``kept``.

    Seen is what Python opens, makes, renames or removes, the native writers in ``WRITERS``, and
    files that are named on the command line of a program that is started. Other native writers and
    what such a program does besides are not seen: they write as in any other run.

    A run ``beside`` another one of the program ends before it writes outside: the other may have the
    same file open, and what is put back would undo what that wrote meanwhile. What it makes there
    itself, under a name that was free, is its own.
    """

    def __init__(self, copied: Copied, spared: str) -> None:
        self._root, self._original = os.path.realpath(copied.root), copied.original
        self._kept = copied.kept
        self._spared = tuple(
            map(_folder, (os.path.realpath(spared), sys.prefix, os.path.dirname(self._kept)))
        )
        self._beside, self._process, self._made = copied.beside, getpid(), set[str]()
        self._journaled: set[str] = set()
        self._thread = threading.local()

    def install(self) -> None:
        """Begin, for the rest of this process."""
        hear(("open", *_REPLACED, *_STARTED, "sqlite3.connect", *_CHANGED), self._heard)
        for module in WRITERS:
            AfterImport(module, partial(self._watch, module)).install()

    # -- what is seen ------------------------------------------------------------------------------

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            # anybody may raise an event of this name
            flags = args[2] if len(args) > 2 and isinstance(args[2], int) else 0
            if flags & WRITING:
                self._makes(args[0], alone=bool(flags & os.O_EXCL))
                self._changes(args[0], contents=not flags & os.O_TRUNC)
        elif event in _REPLACED:
            self._makes(args[0], alone=event == "os.mkdir")
            if self._beside and event == "os.rename":
                self._keep_tree(args[0])
            for number in _REPLACED[event]:
                self._changes(args[number], entry=True)
        elif event in _STARTED:
            self._starts(args[_STARTED[event]], args[2] if event == "subprocess.Popen" else None)
        elif event == "sqlite3.connect":
            self._changes(_database(args[0]))
        else:
            # removes by open folders, whose names are unknown afterwards
            if event == "shutil.rmtree":
                self._keep_tree(args[0])
            self._changes(args[0])

    def _starts(self, command: Any, folder: Any) -> None:
        """A program that is started may change what its command line names, but for programs."""
        # a guess must not keep the program from being started
        with suppress(OSError, TypeError, ValueError):
            for word in _words(command):
                path = os.path.join(os.fsdecode(folder or ""), word.rpartition("=")[2])
                if os.path.isdir(path) or not os.access(path, os.X_OK):
                    self._changes(path)

    def _watch(self, module: str) -> None:
        for name, writer in WRITERS[module].items():
            with suppress(AttributeError):  # another version of the library
                self._hook(sys.modules[module], name, writer)

    def _hook(self, owner: Any, name: str, writer: Writer) -> None:
        *classes, function = name.split(".")
        for each in classes:
            owner = getattr(owner, each)
        write = getattr(owner, function)
        if not write.__code__.co_freevars:  # so that names imported before are hooked, too
            Patches().code(write, partial(self._written, writer))
            return

        @functools.wraps(write)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            return self._written(writer, write, *args, **kwargs)

        Patches().attribute(owner, function, hooked)

    def _written(
        self, watched: Writer, write: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        path = args[watched.place] if len(args) > watched.place else kwargs.get(watched.keyword)
        mode = args[watched.place + 1] if len(args) > watched.place + 1 else kwargs.get("mode", "r")
        if not (watched.modes and mode == "r"):
            self._changes(path, contents=watched.modes and mode != "w", anywhere=True)
        return write(*args, **kwargs)

    # -- what is done about it ---------------------------------------------------------------------

    def _changes(
        self, path: Any, *, contents: bool = True, entry: bool = False, anywhere: bool = False
    ) -> None:
        """``path`` is about to change: as an ``entry`` of its folder, or in its ``contents``."""
        # a descriptor, a buffer; we
        if not isinstance(path, (str, bytes, os.PathLike)) or getattr(self._thread, "cuts", False):
            return
        with suppress(ValueError):  # a name that no file can have
            place = os.path.abspath(os.fsdecode(path))
            if place.startswith(_folder(self._root)):
                self._own(place, contents=contents, last=not entry)
            elif self._beside:
                self._keep_apart(place)
            elif anywhere or place.startswith(_folder(self._original)):
                self._keep(place, needed=entry or not contents)

    def _makes(self, path: Any, *, alone: bool) -> None:
        """Note what is created under a name that is free, and not unless it is."""
        if alone and self._beside and isinstance(path, (str, bytes, os.PathLike)):
            place = os.path.abspath(os.fsdecode(path))
            if not os.path.lexists(place):
                self._made.add(place)

    def _keep_apart(self, path: str) -> None:
        """End this run before it changes what the one beside it may use."""
        ours = path.startswith(self._spared) or "__pycache__" in path
        made = any(path == each or path.startswith(_folder(each)) for each in self._made)
        no_file = os.path.lexists(path) and not os.path.isfile(path)  # a folder stays as it is
        if ours or made or no_file or path.startswith("/proc/"):
            return
        with self._alone(), open(os.path.join(self._kept, OUTSIDE), "w") as file:
            file.write(path)
        os.kill(self._process, signal.SIGKILL)  # a worker ends with the run that it works for
        os._exit(1)

    def _keep_tree(self, path: Any) -> None:
        if isinstance(path, (str, bytes, os.PathLike)) and not os.path.abspath(
            os.fsdecode(path)
        ).startswith(_folder(self._root)):
            for folder, _, files in os.walk(os.path.abspath(os.fsdecode(path))):
                for name in files:
                    self._changes(os.path.join(folder, name), entry=True)

    def _own(self, path: str, *, contents: bool, last: bool) -> None:
        """Cut the links on the way to ``path``, and, if ``last``, the one that it is itself."""
        place, parts = self._root, path[len(self._root) + 1 :].split(os.sep)
        with self._alone():
            for number, part in enumerate(parts, 1):
                place = os.path.join(place, part)
                final = number == len(parts)
                if os.path.islink(place) and (last or not final):
                    _cut(place, contents=contents or not final)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While nothing else cuts links: for a moment, nothing is in a link's place."""
        lock = os.open(os.path.join(self._kept, "lock"), os.O_RDWR | os.O_CREAT)
        self._thread.cuts = True  # what we do ourselves is heard, too
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            self._thread.cuts = False
            # closing is not enough: a child that was just forked has it open, too
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)

    def _keep(self, path: str, *, needed: bool) -> None:
        """Remember the file as it is now, or that there is none.

        Raises :class:`PermissionError` for one that is too large to be kept, if it is ``needed``
        because nothing of it will stay.
        """
        if (
            path in self._journaled
            or path.startswith(self._spared)
            or "__pycache__" in path
            or os.path.isdir(path)
        ):
            return
        there = os.path.isfile(path)
        if there and os.path.getsize(path) > LARGE:
            if needed:
                raise PermissionError(
                    f"{path} would be overwritten or removed; it lies outside of the copy that the "
                    "audit runs in"
                )
            return
        self._journaled.add(path)
        kept = os.path.join(self._kept, f"{os.getpid()}-{len(self._journaled)}") if there else ""
        if there:
            shutil.copy2(path, kept)
        elif os.path.lexists(path):  # a device, a socket, a link that leads nowhere
            return
        with open(
            os.path.join(self._kept, JOURNAL), "a", encoding="utf-8", errors="surrogateescape"
        ) as journal:
            journal.write(json.dumps({"path": path, "kept": kept}) + "\n")


def _words(command: Any) -> Iterator[str]:
    """The words of a command line, or of a shell's line in it, where ``>file`` is two."""
    for word in [command] if isinstance(command, (str, bytes)) else command:
        if isinstance(word, (str, bytes, os.PathLike)):
            yield os.fsdecode(word)
            with suppress(ValueError):  # a quote that is not closed
                line = shlex.shlex(os.fsdecode(word), posix=True, punctuation_chars=True)
                line.whitespace_split = True
                yield from line


def _database(name: Any) -> Any:
    text = os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else ""
    return unquote(urlsplit(text).path) if text.startswith("file:") else name


def _folder(path: str) -> str:
    return path.rstrip(os.sep) + os.sep


def _cut(link: str, *, contents: bool) -> None:
    """Put what a link leads to in its place: a folder of links, or, by ``contents``, a copy."""
    source = os.path.realpath(link)
    if os.path.isdir(source):
        _unfold(link, source)
    elif contents and os.path.isfile(source):
        if os.path.getsize(source) <= LARGE:
            fresh = f"{link}.{os.getpid()}.own"
            shutil.copy2(source, fresh)
            os.replace(fresh, link)
    elif os.path.isfile(source) or not os.path.exists(source):
        os.unlink(link)


def _unfold(link: str, source: str) -> None:
    names = os.listdir(source)
    if len(names) > CROWD:
        return
    fresh = f"{link}.{os.getpid()}.own"
    os.mkdir(fresh)
    for name in names:
        os.symlink(os.path.join(source, name), os.path.join(fresh, name))
    os.unlink(link)
    os.rename(fresh, link)


STACKS = "stacks.txt"
"""File in the recording's folder that the stacks of all threads are written to on SIGUSR1."""


def set_up(plan: Plan) -> None:
    """Prepare this process for the plan, before anything imports torch."""
    # a killed parent cannot end its child; the kernel does (prctl(2), PR_SET_PDEATHSIG)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(1, int(signal.SIGKILL))
    # our parent asks us to end by it; begun with `&`, we would ignore it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a text stream at this point
    # read when torch is imported: keeps Kineto's own lines out
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    if plan.rank is not None:
        if plan.rendezvous:  # else a launcher has told this process who it is
            size = plan.world_size
            os.environ.update(told_by_torchrun(plan.rank, size, size, plan.rendezvous))
        # as torchrun does: the processes share the processors
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if plan.device == "cpu" or plan.rehearses:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    if plan.copied is not None:
        enter(plan.copied, plan.folder)
    trial = plan.purpose_as(Trial)
    if trial is not None:
        prepare(trial)
    repeat = plan.purpose_as(Repeat)
    if repeat is not None:
        SOURCES.begin(repeat)
    if hasattr(signal, "SIGUSR1"):
        with suppress(OSError):  # the folder cannot be written: the recorder says so
            stacks = open(Path(plan.folder) / STACKS, "w")  # noqa: SIM115 - stays open for the signal
            faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def leave_at_once(finished: Callable[[], bool]) -> None:
    """End this process, if its run is ``finished``, without taking apart what its modules hold:
    with torch that takes 1.3 s of CPU. What objects of the program would still write goes to a copy
    that is thrown away.
    """
    if finished():
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # the program's own by now
                stream.flush()
        os._exit(0)


# -- trial setup -----------------------------------------------------------------------------------
# What a trial of ``audit verify`` sets up before the target is imported: the seeds.


def prepare(trial: Trial) -> None:
    """Seed Python's generator now, NumPy's and torch's when they are imported."""
    random.seed(trial.seed)
    AfterImport("numpy", lambda: sys.modules["numpy"].random.seed(trial.seed)).install()
    AfterImport("torch", lambda: sys.modules["torch"].manual_seed(trial.seed)).install()


# -- progress pipe ---------------------------------------------------------------------------------
# What the recording child tells its parent while it runs.


class ProgressPipe:
    """Tells the parent about passes and steps, at most twenty times a second.

    Lines: ``pass done steps``; ``= pass:steps pass:steps ...`` for all passes of the run when that
    is known or changes; ``! sentence`` when the recording can be written no more; ``.`` when all is
    written. A pipe that the target closed is not written to: its number may belong to a file of the
    target's by then. Nor is it by a process that the target forked.
    """

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._identity = None if fd is None else identity_of(fd)
        self._process = getpid()
        self._last = 0.0

    def __call__(self, name: str, done: int, steps: int) -> None:
        """Say that ``done`` of ``steps`` steps of a pass are complete."""
        now = monotonic()
        if self._fd is None or (0 < done < steps and now - self._last < 0.05):
            return
        self._last = now
        self._write(f"{name} {done} {steps}")

    def outline(self, passes: Iterable[tuple[str, int]]) -> None:
        """Say which passes the run has, done and to come, and how many steps each."""
        self._write("= " + " ".join(f"{name}:{steps}" for name, steps in passes))

    def lost(self, sentence: str) -> None:
        """Say that the recording can be written no more."""
        self._write("! " + " ".join(sentence.split()))

    def done(self) -> None:
        """Say that all is written; what follows is the target's own."""
        self._write(".")

    def _write(self, line: str) -> None:
        if self._fd is None:
            return
        if getpid() != self._process or identity_of(self._fd) != self._identity:
            self._fd = None
            return
        try:
            write(self._fd, f"{line}\n".encode())
        except OSError:
            self._fd = None
