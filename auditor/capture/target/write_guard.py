"""Copy on write: what a program that runs in a copy of its project writes does not reach the
project, whatever links lead there.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from auditor.capture.instruments.import_hook import AfterImport
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.target.audit_events import hear
from auditor.runs.plan import JOURNAL, Copied

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

CROWD = 100_000
"""Entries of a linked folder that are linked one by one, at most, when something in it is to
change.
"""

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
"""Events that change what their first argument leads to, or, as ``chdir``, are followed by changes
there.
"""


@dataclass(frozen=True)
class Writer:
    """Where a function that writes a file takes its path: by ``place`` or ``keyword``; ``modes``:
    the next argument is a mode.
    """

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
"""Functions that write from C++, C or Rust, where Python sees no file opened, by module and name in
it.
"""


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
    what such a program does besides are not seen: they write as in any other run
    (``auditor/runs/project_copy.py`` looks afterwards whether the project changed).
    """

    def __init__(self, copied: Copied, spared: str) -> None:
        self._root, self._original = os.path.realpath(copied.root), copied.original
        self._kept = copied.kept
        self._spared = tuple(
            map(_folder, (os.path.realpath(spared), sys.prefix, os.path.dirname(self._kept)))
        )
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
                self._changes(args[0], contents=not flags & os.O_TRUNC)
        elif event in _REPLACED:
            for number in _REPLACED[event]:
                self._changes(args[number], entry=True)
        elif event in _STARTED:
            self._starts(args[_STARTED[event]], args[2] if event == "subprocess.Popen" else None)
        elif event == "sqlite3.connect":
            self._changes(_database(args[0]))
        else:
            # removes by open folders, whose names nobody can tell afterwards
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
        """``path`` is about to change: only as an ``entry`` of its folder, or what it leads to, of
        which ``contents`` may stay.
        """
        # a descriptor, a buffer; we
        if not isinstance(path, (str, bytes, os.PathLike)) or getattr(self._thread, "cuts", False):
            return
        with suppress(ValueError):  # a name that no file can have
            place = os.path.abspath(os.fsdecode(path))
            if place.startswith(_folder(self._root)):
                self._own(place, contents=contents, last=not entry)
            elif anywhere or place.startswith(_folder(self._original)):
                self._keep(place, needed=entry or not contents)

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
        """While no other thread or process of the program cuts links: for a moment, there is
        nothing in a link's place.
        """
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
    """The words of a command line; those of a line for a shell within it, too, where ``>file`` is
    two.
    """
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
    """Put what the link leads to in its place: a folder as a folder of links, a file as a copy or,
    without ``contents``, nothing.
    """
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
