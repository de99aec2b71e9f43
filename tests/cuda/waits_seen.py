"""Where a program makes the host wait, seen from two sides: torch's own CUDA code on the null device
(its warnings and the calls that block), and a rehearsal.

``python -m tests.cuda.waits_seen SIDE OUT PIECE...`` writes a JSON object, piece -> what was seen. A
side is ``torch`` (the process must be on the null device) or ``rehearsal`` (it must not). A piece is
``constructs``, ``sync_zoo`` or ``zoo``, each meaning all of its snippets, or ``FOLDER:TARGET``, a
program: ``trainer:step`` is called :data:`STEPS` times, a script ends at its ``STEPS``-th optimizer
step.
"""

import contextlib
import importlib
import io
import json
import os
import runpy
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from auditor import null_device
from auditor.capture.shadow import Crossing, Listener, shadow_cuda

STEPS = 6
WARNING = "called a synchronizing CUDA operation"
SNIPPETS = {
    "constructs": "tests.shadow.constructs",
    "sync_zoo": "tests.capture.probes.sync.sync_zoo",
    "zoo": "tests.shadow.zoo",
}

Scope = Callable[[str], "str | None"]
"""A source file's short name; None for files that nobody asks about."""
Place = str
"""``FILE:LINE``; empty where no file of the scope is on the stack."""


class Seen:
    """What happened at each place."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.places: dict[Place, Counter[str]] = {}

    def add(self, place: Place, what: str, times: int = 1) -> None:
        """Count ``what`` at ``place``."""
        self.places.setdefault(place, Counter())[what] += times

    def place(self, frame: FrameType | None) -> Place:
        """Of the innermost frame whose file is in the scope."""
        while frame is not None:
            name = self.scope(frame.f_code.co_filename)
            if name is not None:
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return ""


class Watched(Seen):
    """Torch's warnings and the null device's log of calls that block, by the line that ran."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(scope)
        self.at: Place = ""
        watch = null_device.watching()
        assert watch is not None, "this process must be on the null device"
        self.watch = watch
        self.mark = self.watch.mark()

    def flush(self, place: Place) -> None:
        """What was logged since the last flush happened at ``place``."""
        since, self.mark = self.mark, self.watch.mark()
        for call in waits(self.watch.blocking(since, self.mark)):
            self.add(place, call)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """For ``sys.settrace``: follows frames of the scope line by line."""
        if self.scope(frame.f_code.co_filename) is None:
            return None
        self.flush(self.at)
        self.at = self.place(frame.f_back if event == "return" else frame)
        return self.trace

    def warned(self, message: Any, *_: Any) -> None:
        """For ``warnings.showwarning``."""
        if str(message).startswith(WARNING):
            place = self.place(sys._getframe(1)) or self.at  # the engine's threads have no frames
            self.flush(place)
            self.add(place, "warning")

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch what this thread does, and what the autograd engine does for it."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self.warned
            torch.cuda.set_sync_debug_mode("warn")
            self.mark = self.watch.mark()
            sys.settrace(self.trace)
            try:
                yield
            finally:
                sys.settrace(None)
                torch.cuda.set_sync_debug_mode("default")
                self.flush(self.at)


def waits(calls: Iterable[Any]) -> list[str]:
    """The calls that waited: a copy and the wait for its stream are one, and so are frees in a row."""
    found: list[str] = []
    before: Any = None
    for call in calls:
        copied = before is not None and "Memcpy" in before.call and before.thread == call.thread
        if copied and before is not None and call.call == "cudaStreamSynchronize":
            if before.waits:
                found.pop()
            found.append(f"{before.call}, then {call.call}")
        elif call.waits and not (found and call.call == found[-1] == "cudaFree"):
            found.append(call.call)
        before = call
    return found


class Rehearsed(Seen, Listener):
    """Crossings of a rehearsal that block."""

    def crossing(self, crossing: Crossing) -> None:
        if crossing.blocking:
            kind = "h2d" if crossing.direction == "h2d" else crossing.kind
            self.add(self.place(sys._getframe(1)), kind)


Side = Callable[[Scope, Callable[[], Any]], dict[str, Any]]


def _ended(work: Callable[[], Any]) -> str | None:
    """How ``work`` failed, if it did."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            work()
    except Exception as error:  # noqa: BLE001 - another program's
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None


def by_torch(scope: Scope, work: Callable[[], Any]) -> dict[str, Any]:
    """What torch itself says of ``work``, on the null device."""
    seen = Watched(scope)
    with seen.watching():
        error = _ended(work)
    return {"places": seen.places, "error": error}


def by_rehearsal(scope: Scope, work: Callable[[], Any]) -> dict[str, Any]:
    """What the shadow says of ``work``; it must be playing, and ``LISTENING`` be heard."""
    seen = LISTENING[0] = Rehearsed(scope)
    error = _ended(work)
    LISTENING[0] = None
    return {"places": seen.places, "error": error}


LISTENING: list[Rehearsed | None] = [None]


class Relay(Listener):
    """Hands crossings to whom :data:`LISTENING` names."""

    def crossing(self, crossing: Crossing) -> None:
        if LISTENING[0] is not None:
            LISTENING[0].crossing(crossing)


def snippets(name: str) -> Iterator[tuple[str, Scope, Callable[[], Callable[[], Any]]]]:
    """Of each snippet: its name, its file, and what prepares it."""
    module = importlib.import_module(SNIPPETS[name])
    file = str(module.__file__)

    def scope(path: str) -> str | None:
        return name if path == file else None

    found = module.SNIPPETS
    for snippet in found.values() if isinstance(found, dict) else found:
        yield f"{name}/{snippet.__name__}", scope, _prepared(module, snippet)


def _prepared(module: ModuleType, snippet: Callable[..., Any]) -> Callable[[], Callable[[], Any]]:
    def prepare() -> Callable[[], Any]:
        torch.manual_seed(0)
        given = module.Lab("cuda") if hasattr(module, "Lab") else "cuda"
        return lambda: snippet(given)

    return prepare


class Enough(Exception):
    """A script made its steps."""


def program(folder, target):
    """What runs the program in the current directory, which is ``folder``."""
    name, _, function = target.partition(":")

    def script() -> None:
        taken = 0

        def step(*_: Any) -> None:
            nonlocal taken
            taken += 1
            if taken == STEPS:
                raise Enough

        handle = register_optimizer_step_post_hook(step)
        sys.argv = [name]
        try:
            with contextlib.suppress(Enough):
                runpy.run_path(str(folder / name), run_name="__main__")
        finally:
            handle.remove()

    def steps() -> None:
        step = getattr(importlib.import_module(name), function)
        for _ in range(STEPS):
            step()

    return steps if function else script


def in_folder(folder: Path) -> Scope:
    """Files below ``folder``, by their path there."""
    base = str(folder) + os.sep
    return lambda path: path[len(base) :] if path.startswith(base) else None


def gather(side: str, pieces: list[str]) -> dict[str, Any]:
    """Piece -> what was seen; a piece of snippets stands for each of them."""
    judge: Side = by_torch if side == "torch" else by_rehearsal
    found: dict[str, Any] = {}
    for piece in pieces:
        if piece in SNIPPETS:
            for name, scope, prepare in snippets(piece):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    if side == "torch":
                        _ended(prepare())  # what is made once: handles, plans, workspaces
                    work = prepare()
                    found[name] = judge(scope, work)
        else:
            folder, _, target = piece.partition(":")
            here = Path(folder).resolve()
            os.chdir(here)
            sys.path.insert(0, str(here))
            found[piece] = judge(in_folder(here), program(here, target))
    return found


def main(side: str, out: str, pieces: list[str]) -> None:
    """Write what was seen to ``out``."""
    end = Path(out).resolve()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        if side == "rehearsal":
            stack.enter_context(shadow_cuda(Relay(), gpu="NVIDIA H100 80GB HBM3"))
        found = gather(side, pieces)
    end.write_text(json.dumps({"torch": torch.__version__, "pieces": found}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
    sys.stdout.flush()
    os._exit(0)  # as programs of tests/cuda do: torch may abort at the interpreter's end
