"""Lines that register one more hook on each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .rows import KeptHookRow


@dataclass(frozen=True)
class KeptHook:
    """In ``added`` of ``steps`` steps of the loud pass this line registered a hook by ``way`` on the
    same ``owner`` that stayed there; ``n`` of them at its end.
    """

    site: Site
    way: str
    owner: str
    n: int
    added: int
    steps: int


@dataclass(frozen=True)
class KeptHooks(Table):
    """All such lines."""

    parts: ClassVar[tuple[str, ...]] = ("kept_hooks",)

    lines: tuple[KeptHook, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> KeptHooks:
        """From the loud pass."""
        site = evidence.recording.site
        rows = rows_of(evidence, KeptHookRow)
        return cls(tuple(KeptHook(site(r.at), r.way, r.owner, r.n, r.added, r.steps) for r in rows))

    def usual(self, share: float, fewest: int) -> Iterator[KeptHook]:
        """Those on at least this share of the steps, and so many of them."""
        return (each for each in self.lines if each.added >= max(fewest, share * each.steps))
