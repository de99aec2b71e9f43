"""The fork server's side of :mod:`auditor.runs.fork_server`: imports torch, then is copied."""

import fcntl
import gc
import importlib
import importlib.abc
import importlib.machinery
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from auditor.runs.fork_server import CHANGED, decisive, receive, send

MODULES = (
    "torch",
    "torch._dynamo",  # imported by the first step of torch's optimizers
    "auditor.capture.child",
    "auditor.capture.session",
    "auditor.capture.probes.registry",
    "auditor.capture.probes.rehearsal",
)
OURS = {"KINETO_LOG_LEVEL"}  # auditor/capture/process.py sets it as the server does
IDLE_S = 120.0
"""Seconds without a request after which the server ends: a notebook may be open for days."""


def serve(asked: socket.socket) -> None:
    """Returns in each process that is asked for, which has become it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    for name in MODULES:
        importlib.import_module(name)
    gc.enable()
    gc.freeze()  # a collection here would copy it all for each child
    if not _may_fork():
        os._exit(1)
    asked.settimeout(IDLE_S)
    while True:
        try:
            request, files = receive(asked)
        except (EOFError, OSError):
            os._exit(0)
        between = os.fork()
        if between == 0:
            _begin(asked, request, files)
            return
        for file in files:
            os.close(file)
        os.waitpid(between, 0)


def _may_fork() -> bool:
    """No other thread is left when the process forks: another could hold a lock in the copy."""
    trial = os.fork()
    if trial == 0:
        os._exit(0)
    os.waitpid(trial, 0)
    return len(os.listdir("/proc/self/task")) == 1


def _begin(asked: socket.socket, request: dict[str, Any], files: list[int]) -> None:
    """In a copy: fork once more, and end. The second copy returns, as a child of the audit."""
    between = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == between:  # it asks to end with its parent, which must be the audit
        time.sleep(0.0005)
    try:
        os.chdir(request["folder"])
    except OSError as error:
        send(asked, [error.errno, error.strerror, error.filename])
        os._exit(1)
    send(asked, os.getpid())
    asked.close()
    _become(request, files)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Take what a process that is started would have been given."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    high = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 200) for file in (nothing, *files)]
    for file in (nothing, *files):
        os.close(file)
    for file, place in zip((*high, high[1]), (0, 1, request["writing"], 2), strict=True):
        os.dup2(file, place)
    for file in high:
        os.close(file)
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv[:] = ["-c", *request["words"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.unfreeze()
    if "numpy" in sys.modules:  # Python's own generator is seeded by itself
        sys.modules["numpy"].random.seed()
    HiddenTorch().hide()


class HiddenTorch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Torch is not imported, for all that the program can see, until it imports it."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._modules: dict[str, ModuleType] = {}
        self._began = decisive(os.environ)

    def hide(self) -> None:
        """From now on."""
        names = [name for name in sys.modules if name.partition(".")[0] == "torch"]
        self._modules = {name: sys.modules.pop(name) for name in names}
        self._spec = self._modules["torch"].__spec__
        sys.meta_path.insert(0, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Torch's, with this loader."""
        if fullname != "torch" or self._spec is None:
            return None
        spec = importlib.machinery.ModuleSpec("torch", self, origin=self._spec.origin)
        spec.submodule_search_locations = self._spec.submodule_search_locations
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """The torch that is loaded already. Ends the recording's process if its import would have
        given another one; a process that the program forked goes on, since it would not be started
        again.
        """
        now = decisive(os.environ)
        changed = any(
            now.get(name) != self._began.get(name) for name in {*now, *self._began} - OURS
        )
        if changed and os.getpid() == self._process:
            os._exit(CHANGED)
        return self._modules["torch"]

    def exec_module(self, module: ModuleType) -> None:
        """Its parts are there too."""
        module.__spec__ = self._spec
        sys.modules.update(self._modules)
        with suppress(ValueError):
            sys.meta_path.remove(self)
