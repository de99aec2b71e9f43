"""What ``audit plan`` found out: one row for each thing that can be changed, and what fits where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from auditor.extensions.plan.fitting import Fits
from auditor.extensions.plan.measured import Measured

SCHEMA = "audit-plan/1"

Basis = Literal["rehearsed", "estimated"]
"""``rehearsed``: a re-run of the program had this peak. ``estimated``: computed from others."""


@dataclass(frozen=True)
class Largest:
    """The largest batch that fits on a GPU, None where none does. ``why`` says why it was not
    rehearsed, or no larger one; ``more``: a larger one may fit.
    """

    batch: int | None
    basis: Basis
    reserved: int | None = None
    why: str = ""
    more: bool = False


@dataclass(frozen=True)
class PlanRow:
    """One way to run the program. Sizes in bytes; ``why`` says why there is no peak."""

    name: str
    change: str = ""
    """The line to write, or the patch in words; empty for the program as it is."""
    basis: Basis = "rehearsed"
    batch: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    purposes: tuple[tuple[str, int], ...] = ()
    holder: str = ""
    holder_bytes: int = 0
    fits: Mapping[str, Fits] = field(default_factory=dict)
    smallest: str = ""
    """The GPU with least memory on which it fits; empty where it fits on none."""
    largest: Mapping[str, Largest] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Checked:
    """A batch size that was predicted by the model from smaller ones, and then rehearsed."""

    row: str
    batch: int
    predicted_allocated: int
    allocated: int
    predicted_reserved: int
    reserved: int

    @property
    def off(self) -> tuple[float, float]:
        """By what share the predictions missed, of allocated and of reserved memory."""
        pairs = (
            (self.predicted_allocated, self.allocated),
            (self.predicted_reserved, self.reserved),
        )
        first, second = (said / was - 1 if was else 0.0 for said, was in pairs)
        return first, second


@dataclass(frozen=True)
class Card:
    """A GPU that was asked for; ``usable`` bytes are left to torch's allocator."""

    name: str
    memory: int
    context: int

    @property
    def usable(self) -> int:
        """Without what a process takes beside the allocator."""
        return self.memory - self.context


@dataclass(frozen=True)
class PlanResult:
    """The table and what it rests on."""

    target: str
    device: str
    """``shadow`` or ``null device``."""
    cards: tuple[Card, ...]
    batch_of: str
    """What sets the batch size, or why nobody knows."""
    rows: tuple[PlanRow, ...]
    checked: tuple[Checked, ...] = ()
    world: int | None = None
    runs: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        data = asdict(self)
        checked = [{**asdict(each), "off": each.off} for each in self.checked]
        cards = [{**asdict(each), "usable": each.usable} for each in self.cards]
        rows = [{**row, "purposes": dict(row["purposes"])} for row in data["rows"]]
        return {"schema": SCHEMA, **data, "cards": cards, "rows": rows, "checked": checked}


def rehearsed(name: str, change: str, batch: int | None, found: Measured) -> PlanRow:
    """A row that a re-run measured."""
    return PlanRow(
        name,
        change,
        "rehearsed",
        batch,
        found.allocated,
        found.reserved,
        found.purposes,
        found.holder,
        found.holder_bytes,
    )
