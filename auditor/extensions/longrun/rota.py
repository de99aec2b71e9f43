"""When there is a look: every N steps, when somebody asks, when the run departs from its
course. Never so often that looking slows training.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

COOL_DOWN_S = 600.0
"""Between two looks for departures of one kind, and between two warnings of one kind."""

PER_HOUR = 6
"""Looks for departures in any hour."""

HOUR_S = 3600.0


@dataclass
class Rota:
    """``budget`` is the share of the run's time that the looks of ``every`` may add to it, and once
    more those for departures: after one that took ``s`` seconds more than its steps would have,
    there is none of its kind until the run has lasted ``s / budget``. Looks that somebody asks for
    have no bound.
    """

    every: int
    budget: float
    began: float
    cool_down: float = COOL_DOWN_S
    per_hour: int = PER_HOUR
    asked: bool = False

    def __post_init__(self) -> None:
        self.next_step = self.every
        """No look of ``every`` is due before it."""
        self._allowed = {"every": self.began, "departed": self.began}
        self._spent = {"every": 0.0, "departed": 0.0}
        self._kind = ""
        self._waiting: dict[str, str] = {}
        self._looked: dict[str, float] = {}
        self._departures: deque[float] = deque(maxlen=max(1, self.per_hour))
        self.held_back = 0
        self.added = 0.0
        """Seconds that all looks added."""

    def ask(self) -> None:
        """Somebody wants a look."""
        self.asked = True

    def depart(self, kind: str, why: str, now: float) -> bool:
        """The run has departed from its course, as ``kind`` says; whether there will be a look. One
        that only the budget or the hour holds back comes when they allow it.
        """
        last = self._looked.get(kind)
        if self.per_hour < 1 or (last is not None and now - last < self.cool_down):
            self.held_back += 1
            return False
        self._waiting.setdefault(kind, why)
        if not self._free(now):
            self.held_back += 1
            return False
        return True

    def _free(self, now: float) -> bool:
        last = self._departures
        full = len(last) == self.per_hour and now - last[0] < HOUR_S
        return now >= self._allowed["departed"] and not full

    def due(self, step: int, now: float) -> str:
        """Why the next steps are to be looked at; empty if they are not."""
        if self.asked:
            return "asked for"
        if self._waiting and self._free(now):
            return next(iter(self._waiting.values()))
        if step >= self.next_step and now >= self._allowed["every"]:
            return f"every {self.every:,} steps"
        return ""

    def begun(self, step: int, now: float) -> None:
        """A look begins, or cannot: the next one is as far away."""
        self._kind = "every"
        if self.asked:
            self._kind = ""
        elif self._waiting and self._free(now):
            self._kind = "departed"
            self._departures.append(now)
            self._looked.update(dict.fromkeys(self._waiting, now))
        self._waiting.clear()  # a look shows all that is the matter
        self.asked = False
        self.next_step = step + self.every

    def ended(self, added: float) -> None:
        """It took so many seconds more than its steps would have."""
        self.added += added
        if self._kind:
            self._spent[self._kind] += added
            self._allowed[self._kind] = self.began + self._spent[self._kind] / self.budget
