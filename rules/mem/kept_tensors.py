"""Variables that hold more tensors without a graph after each step, or a larger one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.recorded.retained_graphs import grows
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema import KeptRow

from .bounds import Bounds
from .last_items import LastItems
from .self_concatenation import accumulated_at


@dataclass(frozen=True)
class Keeper:
    """A variable and what it held at the end of each step. ``site`` is the line that fills it, None
    if it was not found. ``bounded``: some line cuts it, or begins it anew. ``joined``: what that
    line puts behind itself; ``keys`` as in ``KeptRow``. ``last_alone``: nothing but its last items
    is read.
    """

    name: str
    site: Site | None
    tensors: tuple[int, ...]
    nbytes: tuple[int, ...]
    devices: tuple[str, ...] = ()
    bounded: bool = False
    joined: str = ""
    keys: str = ""
    last_alone: bool = False

    @property
    def endless(self) -> bool:
        """Whether it is known to grow as long as the run: not a store that is full one day."""
        return bool(self.joined or self.keys or self.last_alone) and not self.bounded

    @property
    def bytes_per_step(self) -> float:
        """Bytes by which it grew, per step."""
        return (self.nbytes[-1] - self.nbytes[0]) / max(1, len(self.nbytes) - 1)


@dataclass(frozen=True)
class KeptTensors(Table):
    """Such variables of the loud pass, the one that grew most first."""

    parts: ClassVar[tuple[str, ...]] = ("kept",)

    keepers: tuple[Keeper, ...] = ()

    @classmethod
    def without_parts(cls, evidence: Evidence) -> KeptTensors:
        """Older recordings lack the part."""
        return cls()

    @classmethod
    def build(cls, evidence: Evidence) -> KeptTensors:
        """From the loud pass."""
        source = evidence.get(Source)
        bounds, last = Bounds(source), LastItems(source)
        keepers = [
            _keeper(evidence, row, source, bounds, last)
            for row in rows_of(evidence, KeptRow)
            if row.pass_name == "loud" and len(row.tensors) == len(row.nbytes)
        ]
        return cls(tuple(sorted(keepers, key=lambda each: -each.bytes_per_step)))

    def growing(self, share: float, *, device: bool) -> Iterator[Keeper]:
        """Those that hold more on ``share`` of the steps and never let go, on a device or in host
        memory, and whose line is known. One tensor that gets larger counts where it is joined.
        """
        return (
            each
            for each in self.keepers
            if each.site is not None
            and (grows(each.tensors, share) or (each.joined and grows(each.nbytes, share)))
            and ({"cpu"} != set(each.devices)) is device
        )


def _keeper(
    evidence: Evidence, row: KeptRow, source: Source, bounds: Bounds, last: LastItems
) -> Keeper:
    name = f"{row.name}{row.path}"
    site = evidence.recording.site_at(row.file, row.line, row.function) if row.line else None
    longer = accumulated_at(source, site) if site is not None else None
    file = site.file if site is not None else row.file
    bounded = bounds.cut(file, name, by_item=not row.keys, once=longer is None)
    return Keeper(
        name,
        site,
        tuple(row.tensors),
        tuple(row.nbytes),
        tuple(row.devices),
        bounded or (longer is not None and not longer.unbounded),
        longer.name if longer is not None else "",
        row.keys,
        last.suffice(file, name),
    )
