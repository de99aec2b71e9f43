"""How the ranks of a launcher agree, through files in a folder that all of them see: where they
record, which run is next, and how each of them ended.

A rank asks with an unused name, so that files of an earlier job answer no question.
"""

import json
import os
import shutil
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem
from auditor.runs.launchers import Launched

JOIN_S = 300.0
"""How long a rank waits for rank 0's answer: machines of one job may start minutes apart."""

REFUSE_S = 10.0
"""How long rank 0, which cannot begin, waits for the others to ask."""

POLL_S = 0.2
"""Seconds between two looks into the folder, which may lie on a network's disk."""

DONE = "done"
"""The decision that no run follows."""

CLOSED = "closed"
"""The file in which rank 0 says that nothing follows."""


@dataclass(frozen=True)
class Mark:
    """How a rank ended a run: ``problem`` (message and hint) where it could not be run at all."""

    completed: bool
    problem: tuple[str, str] | None = None


class RankMeeting:
    """One job's meeting, in ``place``, which all ranks know."""

    def __init__(self, place: Path, own: Launched) -> None:
        self.own = own
        self._folder = place / f".ranks-{own.job}"
        self._over = threading.Event()

    # -- where -------------------------------------------------------------------------------------

    def open(self, folder: Path) -> None:
        """As rank 0: tell all that ask, from now on, that ``folder`` takes the results."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for each in self._folder.iterdir():
            if not each.name.lstrip(".").startswith("ask-"):  # ".ask-": being written right now
                each.unlink(missing_ok=True)
        threading.Thread(target=self._answer, args=(str(folder.resolve()),), daemon=True).start()

    def _answer(self, folder: str) -> None:
        while not self._over.wait(POLL_S):
            self._tell(folder)

    def _tell(self, folder: str) -> int:
        """Answer those that ask now; how many there were."""
        told = 0
        with suppress(OSError):
            for each in self._folder.glob("ask-*"):
                _write(each.with_name(f"told-{each.name[4:]}"), folder)
                each.unlink(missing_ok=True)
                told += 1
        return told

    def refuse(self, seconds: float = REFUSE_S) -> None:
        """As rank 0, which cannot begin: tell the others that ask within some seconds."""
        until, left = time.monotonic() + seconds, self.own.world_size - 1
        while left > 0 and time.monotonic() < until:
            left -= self._tell("")
            time.sleep(POLL_S)
        self._remove_empty()

    def _remove_empty(self) -> None:
        """Whoever of those that go is the last one removes the folder."""
        with suppress(OSError):
            self._folder.rmdir()

    def join(self, seconds: float = JOIN_S) -> Path | None:
        """As another rank: the folder for the results; None if rank 0 cannot begin.

        Raises :class:`AuditProblem` if rank 0 does not answer.
        """
        name = f"{self.own.rank}-{uuid.uuid4().hex}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write(self._folder / f"ask-{name}", "")
        except OSError as error:
            raise AuditProblem(
                f"{self._folder} cannot be written: {error.strerror}",
                "choose a folder that all ranks see with --out",
            ) from None
        told = self._folder / f"told-{name}"
        until = time.monotonic() + seconds
        while (found := self._look(told)) is None and time.monotonic() < until:
            time.sleep(POLL_S)
        if found is None:
            (self._folder / f"ask-{name}").unlink(missing_ok=True)
            raise AuditProblem(
                f"rank {self.own.rank} heard nothing from rank 0 within {seconds:.0f} s",
                "the ranks meet in the folder for the results: choose one that all of them see "
                "with --out",
            )
        told.unlink(missing_ok=True)
        if not found:
            self._remove_empty()
        return Path(found) if found else None

    # -- what each has done ------------------------------------------------------------------------

    def mark(self, run: int, mark: Mark) -> None:
        """Tell the others how this rank ended a run."""
        words = {"completed": mark.completed, "problem": mark.problem}
        with suppress(OSError):  # the disk is full: the recording says so
            _write(self._folder / f"ended-{run}-{self.own.rank}", words)

    def marks(self, run: int) -> dict[int, Mark]:
        """The ranks that have ended a run, and how."""
        found = {}
        for rank in range(self.own.world_size):
            words = self._look(self._folder / f"ended-{run}-{rank}")
            if isinstance(words, dict):
                problem = words.get("problem")
                found[rank] = Mark(
                    bool(words.get("completed")), tuple(problem) if problem else None
                )
        return found

    # -- what is next ------------------------------------------------------------------------------

    def decide(self, run: int, what: Any) -> None:
        """As rank 0: what the ranks do as their ``run``-th run; :data:`DONE` if there is none."""
        _write(self._folder / f"decided-{run}", what)

    def decision(self, run: int, seconds: float) -> Any:
        """As another rank: what is done as run ``run``; :data:`DONE` if rank 0 says nothing."""
        until, path = time.monotonic() + seconds, self._folder / f"decided-{run}"
        while (found := self._look(path)) is None:
            if time.monotonic() > until or not self._folder.is_dir():
                return DONE
            if self._look(self._folder / CLOSED) is not None:
                return DONE
            time.sleep(POLL_S)
        return found

    def close(self) -> None:
        """As rank 0: nothing follows. The others have seconds to see it."""
        self._over.set()
        with suppress(OSError):
            _write(self._folder / CLOSED, DONE)
            ranks = self.own.world_size - 1
            until = time.monotonic() + 3.0
            while len(list(self._folder.glob("left-*"))) < ranks and time.monotonic() < until:
                time.sleep(POLL_S)
        shutil.rmtree(self._folder, ignore_errors=True)

    def leave(self) -> None:
        """As another rank: this process goes, and reads here no more."""
        with suppress(OSError):
            _write(self._folder / f"left-{self.own.rank}", "")

    # -- files -------------------------------------------------------------------------------------

    @staticmethod
    def _look(path: Path) -> Any:
        try:
            return json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            return None


def _write(path: Path, what: Any) -> None:
    """Write a whole file at once, so that no reader sees half of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(what), "utf-8")
    beside.replace(path)
