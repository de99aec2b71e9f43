"""States of modules that were kept while the training changed them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site

from .kept_names import brought_back
from .rows import KeptStateRow


@dataclass(frozen=True)
class KeptState:
    """``site`` took the state of a ``module`` that was kept over ``steps`` optimizer steps, which
    changed the tensors in it.

    ``back``: where it is brought back; ``loads``: how often the run did that.
    """

    site: Site
    module: str
    steps: int
    back: Site | None
    loads: int = 0


@dataclass(frozen=True)
class KeptStates(Table):
    """All lines whose states were kept so; empty where none were."""

    parts: ClassVar[tuple[str, ...]] = ("states",)

    states: tuple[KeptState, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> KeptStates:
        """From steps of all passes up to the diagnostic one, and from the source behind them."""
        source = evidence.get(Source)
        return cls(tuple(_state(evidence, source, row) for row in rows_of(evidence, KeptStateRow)))

    def brought_back(self, steps: int) -> Iterator[KeptState]:
        """Those that the program brings back after so many steps."""
        return (each for each in self.states if each.back and each.steps >= steps)


def _state(evidence: Evidence, source: Source, row: KeptStateRow) -> KeptState:
    site = evidence.recording.site(row.at)
    if row.loaded and row.loaded_at is not None:
        back: Site | None = evidence.recording.site(row.loaded_at)
    else:
        back = None if row.loaded_at_once else brought_back(source, site)
    return KeptState(site, row.module, row.steps, back, row.loaded)
