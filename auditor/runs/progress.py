"""Progress of a recording child as its parent reports it. Standard library only."""

from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """Told of the run's progress: ``done`` of ``steps`` steps of a pass are complete."""

    def __call__(self, name: str, done: int, steps: int, /) -> None:
        """Once at a pass's begin, then at most twenty times a second."""


@runtime_checkable
class Display(Progress, Protocol):
    """Progress that is shown: it also asks which run this is, and which passes it has."""

    def stage(self, name: str) -> None:
        """A run begins: ``target``, ``run up to the error``, ``replay`` or
        ``rehearsal``; ``again`` is the same one with fewer steps, ``unwatched`` without the watch
        under which it failed.
        """

    def outline(self, passes: list[tuple[str, int]]) -> None:
        """All passes of the run, with their steps; told again as it changes."""


def silent(name: str, done: int, steps: int) -> None:
    """Progress without a display."""


def stage(progress: Progress, name: str) -> None:
    """Say which run begins, where that is shown."""
    if isinstance(progress, Display):
        progress.stage(name)


class Late:
    """Progress of a run that is not shown yet."""

    def __init__(self) -> None:
        self._shown: Progress = silent
        self._passes: list[tuple[str, int]] = []
        self._last: tuple[str, int, int] | None = None

    def show(self, progress: Progress) -> None:
        """Tell ``progress`` from now on, first of all how far the run is."""
        self._shown = progress
        self.outline(self._passes)
        if self._last is not None:
            progress(*self._last)

    def stage(self, name: str) -> None:
        """It begins again."""
        stage(self._shown, name)

    def outline(self, passes: list[tuple[str, int]]) -> None:
        """All its passes."""
        self._passes = passes
        if passes and isinstance(self._shown, Display):
            self._shown.outline(passes)

    def __call__(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps of a pass are complete."""
        self._last = name, done, steps
        self._shown(name, done, steps)


class Pace:
    """How far a run has come, from what its child tells; ``progress`` is told, too."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._done: dict[str, int] = {}

    def read(self, line: str) -> None:
        """A line of the child: ``pass done steps``, or ``= pass:steps pass:steps ...`` for all."""
        name, *told = line.split()
        if name != "=":
            done, steps = map(int, told)
            self._done[name] = done
            self._progress(name, done, steps)
        elif isinstance(self._progress, Display):
            pairs = (each.partition(":") for each in told)
            self._progress.outline([(name, int(steps)) for name, _, steps in pairs])

    @property
    def steps(self) -> int:
        """Steps that are complete."""
        return sum(self._done.values())
