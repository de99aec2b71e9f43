"""Counts what the step calls, by the user's line: the life of such a probe, once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Generic, TypeVar

from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.row import LineRow

Of = Callable[..., dict[str, Any] | None]
"""Fields of a row by the arguments of a call."""


R = TypeVar("R", bound=LineRow)


class Counted(Generic[R]):
    """The rows of the step that runs: one for each line and each set of facts."""

    def __init__(self, context: Context, kind: type[R]) -> None:
        self._context = context
        self._kind = kind
        self._rows: dict[tuple[Hashable, ...], R] = {}

    def of(self, **facts: Any) -> R:
        """The row to add to."""
        key = tuple(facts.items())
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = self._kind(n=0, **facts)
        return row

    def write(self) -> None:
        """Write them, and begin again."""
        for row in self._rows.values():
            self._context.add(row)
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._rows.clear()


class Tally(Probe):
    """Writes a ``row`` for each line, and each set of facts, that called in a step.

    A probe says in :meth:`watch` what to patch: ``self._patches.code(function, self.hook(name=...))``
    where a function's code can be swapped, so that aliases taken before are seen too, else
    ``self.around(original, name=...)`` in the original's place. Calls of other threads are not the
    step's doing; one inside another is part of that.
    """

    row: ClassVar[type[LineRow]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "row" in vars(cls):
            cls.name = vars(cls).get("name", cls.row.part)
            cls.parts, cls.passes = (cls.row.part,), frozenset(cls.row.passes)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = False
        self._queue = RunQueue()
        self._rows = Counted(context, self.row)

    def watch(self) -> None:
        """Patch what is counted."""
        raise NotImplementedError

    def at(self) -> int | None:
        """The user's line that calls; None for a call without a user's line."""
        return self.context.frames.here()

    def start(self) -> None:
        self._rows.clear()
        super().start()
        self.watch()

    def stop(self) -> None:
        super().stop()
        self._queue.close()

    def step_end(self) -> None:
        self._rows.write()

    def around(
        self, original: Callable[..., Any], of: Of | None = None, **facts: Any
    ) -> Callable[..., Any]:
        """A function for the original's place, counted as by :meth:`hook`."""
        hook = self.hook(of, **facts)

        @functools.wraps(original)
        def counted(*args: Any, **kwargs: Any) -> Any:
            return hook(original, *args, **kwargs)

        return counted

    def hook(self, of: Of | None = None, **facts: Any) -> Callable[..., Any]:
        """Calls the original, counted with these facts and ``of``'s, unless those are None."""

        def counted(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            row = None
            try:
                at = None if self._inside or not self.in_step else self.at()
                more = {} if of is None or at is None else of(*args, **kwargs)
                if at is not None and more is not None:
                    row = self._rows.of(at=at, **facts, **more)
            except Exception as error:  # the call continues despite our error
                self.missed(error)
            if row is None:
                return original(*args, **kwargs)
            row.n += 1  # before the call: without a GPU several of these raise
            self._inside = True
            start = self._queue.mark()
            try:
                return original(*args, **kwargs)
            finally:
                row.us += self._queue.own_us(start)
                self._inside = False

        return counted
