"""Operators that a rehearsal ran on the shadow device, by what describes a call, and how often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.sync import DeviceUseRow, OperatorOrderRow, OperatorRow
from auditor.rule import NotLooked


@dataclass(frozen=True)
class RanOperators(Table):
    """What ran in the rehearsed steps."""

    parts: ClassVar[tuple[str, ...]] = ("operators", "device_use")
    absent: ClassVar[Mapping[str, str]] = {
        "operators": "operators are only written down in a rehearsal, and this recording has none"
    }
    of_rehearsals: ClassVar[bool] = True

    steps: int
    """Steps in which the device was used."""
    calls: tuple[tuple[OperatorRow, int], ...]
    """Each different call, as its first row describes it, and how often it ran in all steps."""
    undescribed: int
    """Calls of which nothing but their number is known."""
    tf32_matmul: bool
    tf32_conv: bool

    @classmethod
    def build(cls, evidence: Evidence) -> RanOperators:
        """Raises :class:`NotLooked` where no operator ran on the device."""
        rows = rows_of(evidence, OperatorRow)
        steps = len({(row.pass_name, row.step) for row in rows})
        if not steps:
            raise NotLooked("no operator ran on the rehearsed device")
        counts: Counter[int] = Counter()
        for row in rows:
            counts[row.id] += row.n
        described = _described(rows)
        use = evidence.rows(DeviceUseRow)
        return cls(
            steps,
            tuple((row, counts[number]) for number, row in described.items()),
            sum(n for number, n in counts.items() if number not in described),
            any(row.tf32_matmul for row in use),
            all(row.tf32_conv for row in use),
        )


@dataclass(frozen=True)
class OrderedOperators(Table):
    """The operators of each rehearsed step in the order in which they ran."""

    parts: ClassVar[tuple[str, ...]] = ("operators", "operator_order")
    absent: ClassVar[Mapping[str, str]] = {
        **RanOperators.absent,
        "operator_order": "this recording does not hold the order of its operators",
    }
    of_rehearsals: ClassVar[bool] = True

    described: Mapping[int, OperatorRow]
    """Calls by their number, as their first row describes them."""
    steps: tuple[tuple[tuple[int, Site | None], ...], ...]
    """Number of the call, and the user's line that it ran for."""
    whole: bool
    """No step had more operators than are kept."""

    @classmethod
    def build(cls, evidence: Evidence) -> OrderedOperators:
        """Raises :class:`NotLooked` where no operator ran on the device."""
        rows = rows_of(evidence, OperatorOrderRow)
        if not rows:
            raise NotLooked("no operator ran on the rehearsed device")
        site = evidence.recording.site
        return cls(
            _described(rows_of(evidence, OperatorRow)),
            tuple(
                tuple(
                    (number, site(at) if at >= 0 else None)
                    for number, at in zip(row.ids, row.at, strict=False)
                )
                for row in rows
            ),
            not any(row.cut for row in rows),
        )


def _described(rows: Iterable[OperatorRow]) -> dict[int, OperatorRow]:
    """Calls by their number, as their first row describes them."""
    described: dict[int, OperatorRow] = {}
    for row in rows:
        if row.name:
            described.setdefault(row.id, row)
    return described
