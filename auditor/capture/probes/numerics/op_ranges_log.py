"""What delicate operators were given: one entry for each place, with ranges that stay on the device
until the pass is over.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from auditor.capture.instruments.storages import Storages
from auditor.recordings.schema.numerics import NumericRow


class CallFacts(NamedTuple):
    """What is constant about a kind of call at one place, as the part ``numerics`` names it."""

    at: int
    what: str
    op: str
    dtype: str
    scalar: float = 0.0
    feed: str = ""
    guarded: bool = False


@dataclass(eq=False)
class Entry:
    """One kind of call at one place: facts, how often it was seen, the range of values."""

    facts: CallFacts
    n: int = 0
    steps: set[int] = field(default_factory=set)
    into: set[str] = field(default_factory=set)
    """Operators that an epsilon's result was given to."""
    loss: bool = False
    """True if a backward began at what was made of it, with no product in between."""
    _range: tuple[torch.Tensor, torch.Tensor] | None = None
    _overflowed: torch.Tensor | None = None
    """Calls that gave an infinity though all they were given was finite; None where nobody
    counts.
    """

    def saw(self, step: int, tensor: torch.Tensor) -> None:
        """One more call. Nothing is read on the host."""
        self.n += 1
        self.steps.add(step)
        if tensor.numel() == 0 or tensor.layout is not torch.strided or tensor.is_meta:
            return
        low, high = torch.aminmax(tensor.detach())
        if self._range is not None:  # propagates NaN, which is an answer too
            low, high = torch.minimum(low, self._range[0]), torch.maximum(high, self._range[1])
        self._range = low, high

    def gave(self, output: torch.Tensor, given: Iterable[torch.Tensor]) -> None:
        """Count whether this call overflowed. Nothing is read on the host."""
        made = torch.isinf(output).any()
        for tensor in given:
            made = made & torch.isfinite(tensor).all()
        self._count(made)

    def ended(self, loss: torch.Tensor) -> None:
        """Count whether a backward began at what is not finite. Nothing is read on the host."""
        self._count(~torch.isfinite(loss).all())

    def _count(self, bad: torch.Tensor) -> None:
        self._overflowed = bad.long() if self._overflowed is None else self._overflowed + bad

    def row(self) -> NumericRow:
        """As the part ``numerics`` holds it. Reads the range: a host sync on a GPU."""
        low, high = (None, None) if self._range is None else (float(each) for each in self._range)
        facts, over = self.facts, 0 if self._overflowed is None else int(self._overflowed)
        return NumericRow(
            at=facts.at,
            what=facts.what,
            op=facts.op,
            dtype=facts.dtype,
            scalar=facts.scalar,
            feed=facts.feed,
            guarded=facts.guarded,
            n=self.n,
            steps=len(self.steps),
            least=_json(low),
            greatest=_json(high),
            overflowed=over,
            into=sorted(self.into),
            loss=self.loss,
        )


def _json(number: float | None) -> float | str | None:
    return number if number is None or abs(number) < float("inf") else str(number)


@dataclass(frozen=True)
class Trail:
    """What led to a tensor, as far back as the last product of matrices."""

    op: str = ""
    """The operator that made it, as far as only casts, views, choices and an epsilon came after."""
    epsilon: Entry | None = None
    half: frozenset[Entry] = frozenset()
    """Calls in half precision that it was computed from."""


class OpRangesLog:
    """Entries of one pass by their facts."""

    def __init__(self) -> None:
        self._entries: dict[CallFacts, Entry] = {}
        self.trails: Storages[Trail] = Storages()

    def entry(self, facts: CallFacts) -> Entry:
        """The entry with these facts, made at its first call."""
        entry = self._entries.get(facts)
        if entry is None:
            entry = self._entries[facts] = Entry(facts)
        return entry

    def reached_loss(self, tensors: Iterable[torch.Tensor]) -> None:
        """A backward begins at these tensors."""
        for tensor in tensors:
            trail = self.trails.of(tensor)
            for entry in trail.half if trail is not None else ():
                entry.loss = True

    def rows(self) -> list[NumericRow]:
        """All entries as rows, in the order in which they were seen first."""
        return [entry.row() for entry in self._entries.values()]
