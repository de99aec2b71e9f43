"""Optimizers that loaded a state before the first step: which learning rates it replaced, and which ones then ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Table, rows_of
from auditor.model import Site
from auditor.recording import Recording, Row

Rates = dict[str, float]
"""Rates of one parameter group by name: ``lr``, and what schedulers keep there (``initial_lr``, ``max_lr``)."""


@dataclass(frozen=True)
class Group:
    """Rates of one parameter group: as the program made it, as loading its state left it, and at the first step."""

    before: Rates
    after: Rates
    ran: Rates

    def replaced(self, default: float | None, tolerance: float) -> tuple[float, float] | None:
        """The configured rate and the loaded one that ran in its place; None where they agree or nobody configured one.

        A rate that a scheduler brought down is not compared, but the one it started from. Where no scheduler left its mark
        a lower one may have been set by hand.
        """
        if not _close(self.ran.get("lr"), self.after.get("lr"), tolerance):
            return None  # set anew after the load
        pair = self._comparable()
        if pair is None or pair[0] == default or _close(*pair, tolerance):
            return None
        return pair

    def _comparable(self) -> tuple[float, float] | None:
        made, loaded = self.before, self.after
        if "max_lr" in made or "max_lr" in loaded:  # cycles compute the rate that they start from
            both = "max_lr" in made and "max_lr" in loaded
            return (made["max_lr"], loaded["max_lr"]) if both else None
        start = made.get("initial_lr", made.get("lr"))
        if start is None or "lr" not in loaded:
            return None
        if "initial_lr" in loaded:
            return start, loaded["initial_lr"]
        return (start, loaded["lr"]) if start < loaded["lr"] else None


@dataclass(frozen=True)
class Load:
    """One optimizer that loaded a state. ``default`` is the rate that its class has where none is given."""

    site: Site | None
    optimizer: str
    default: float | None
    groups: tuple[Group, ...]

    def replaced(self, tolerance: float) -> tuple[tuple[float, float], ...]:
        """Configured and loaded rates of the groups in which the loaded one won, each pair once."""
        pairs = (group.replaced(self.default, tolerance) for group in self.groups)
        return tuple(dict.fromkeys(pair for pair in pairs if pair is not None))


@dataclass(frozen=True)
class Resumed(Table):
    """All such optimizers."""

    parts: ClassVar[tuple[str, ...]] = ("rates",)

    loads: tuple[Load, ...] = ()

    @classmethod
    def build(cls, recording: Recording) -> Resumed:
        """From the end of the loud pass."""
        return cls(tuple(_load(recording, row) for row in rows_of(recording, "rates")))


def _load(recording: Recording, row: Row) -> Load:
    groups = zip(row["before"], row["after"], row["ran"], strict=False)  # a group may have been added since
    site = None if row["at"] is None else recording.site(row["at"])
    return Load(site, row["optimizer"], row["default"], tuple(Group(*each) for each in groups))


def _close(one: float | None, other: float | None, tolerance: float) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance)
