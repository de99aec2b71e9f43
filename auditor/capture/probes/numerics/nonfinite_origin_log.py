"""Where non-finite values were born: one record each, kept by the storage that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.recordings.schema import BirthInput, BirthRow

Phase = Literal["forward", "backward", "optimizer", "input", "parameter", "state"]

Line = tuple[str, int]
"""File and line."""

PRUNE_AT = 4096
"""Storages under watch from which those that are gone are looked for; twice as many as were left
the next time.
"""


@dataclass(frozen=True)
class Birth:
    """An operator whose output was not finite although its inputs were, or a value that came into
    the step non-finite.

    A *fill* was written on purpose (``masked_fill(-inf)``, a mask of zeros and ``-inf``) or never
    written at all (``empty``): it is nobody's fault as long as nothing is made of it.
    """

    order: int
    step: int
    op: str
    phase: Phase
    value: str
    dtype: str
    at: int | None
    place: Line | None
    """Where ``at`` is."""
    entered: int | None = None
    """Of data: where the user's code called the outermost module that ran."""
    node: str = ""
    module: str = ""
    fill: bool = False
    constants: tuple[str, ...] = ()
    """Non-finite numbers among its arguments."""
    inputs: tuple[BirthInput, ...] = field(default=(), compare=False)

    def row(self) -> BirthRow:
        """As the part ``births`` holds it."""
        return BirthRow(
            step=self.step,
            at=self.at,
            entered=self.entered,
            op=self.op,
            phase=self.phase,
            value=self.value,
            dtype=self.dtype,
            node=self.node,
            module=self.module,
            fill=self.fill,
            constants=list(self.constants),
            inputs=list(self.inputs),
        )


class NonfiniteOriginLog:
    """Births by storage, so that views share them. Weak: memory is freed as ever, but no address is
    used again meanwhile.
    """

    def __init__(self) -> None:
        self.births: list[Birth] = []
        self._holding: dict[int, tuple[Birth, StorageWeakRef]] = {}
        self._prune_at = PRUNE_AT
        self._parameters: dict[int, StorageWeakRef] = {}
        self._datasets: dict[int, str] = {}
        """By order of a birth."""
        self._batches: dict[int, tuple[str, StorageWeakRef]] = {}

    def note_batch(self, tensor: torch.Tensor, dataset: str) -> None:
        """A loader gave this tensor, which is not finite, of that dataset."""
        birth, key = self.of(tensor), _key(tensor)
        if birth is not None and birth.phase == "input":
            self._datasets[birth.order] = dataset
        elif birth is None and key is not None:
            self._batches[key] = dataset, StorageWeakRef(tensor.untyped_storage())

    def row(self, birth: Birth) -> BirthRow:
        """The same, with the dataset that a loader read it from."""
        row = birth.row()
        row.dataset = self._datasets.get(birth.order, "")
        return row

    def note_parameters(self, tensors: Iterable[torch.Tensor]) -> None:
        """Of these the parameters are seen; their views (the transposed weight of a product) are
        theirs too.
        """
        for tensor in tensors:
            key = (
                _key(tensor)
                if isinstance(tensor, torch.nn.Parameter)
                or (tensor.is_leaf and tensor.requires_grad)
                else None
            )
            if key is not None and key not in self._parameters:
                self._parameters[key] = StorageWeakRef(tensor.untyped_storage())

    def of_parameter(self, tensor: torch.Tensor) -> bool:
        """True for a parameter that was seen, or a view of one."""
        return _key(tensor) in self._parameters

    def of(self, tensor: torch.Tensor) -> Birth | None:
        """The birth of what is non-finite in this tensor, if it was seen."""
        key = _key(tensor)
        entry = None if key is None else self._holding.get(key)
        return None if entry is None else entry[0]

    def hold(self, tensor: torch.Tensor, birth: Birth) -> None:
        """The tensor now holds what was born there. An earlier birth that still stands is kept,
        unless it was a fill.
        """
        key = _key(tensor)
        if key is None:
            return
        before = self._holding.get(key)
        if before is None or before[0].fill or before[0].order > birth.order:
            self._holding[key] = birth, StorageWeakRef(tensor.untyped_storage())
        if birth.phase == "input" and key in self._batches:
            self._datasets[birth.order] = self._batches.pop(key)[0]
        self._prune()

    def finite(self, tensor: torch.Tensor) -> None:
        """The tensor was found to be finite: forget its storage's birth if it covers the
        storage.
        """
        key = _key(tensor)
        if key in self._holding and tensor.nbytes >= tensor.untyped_storage().nbytes():
            del self._holding[key]

    def add(self, **facts: Any) -> Birth:
        """A new birth, the latest."""
        birth = Birth(order=len(self.births), **facts)
        self.births.append(birth)
        return birth

    def told(self, birth: Birth) -> Birth:
        """The birth to report: of a backward's the one in the forward of the same line, if that
        came first.

        ``log(0)`` is ``-inf`` in forward and ``1 / 0`` in backward; only the first says what the
        input was.
        """
        if birth.phase != "backward" or birth.place is None:
            return birth
        same = (
            b for b in self.births if b.phase == "forward" and not b.fill and b.place == birth.place
        )
        return next(same, birth)

    def _prune(self) -> None:
        if len(self._holding) >= self._prune_at:
            self._holding = {
                key: entry for key, entry in self._holding.items() if not entry[1].expired()
            }
            self._prune_at = max(PRUNE_AT, 2 * len(self._holding))


def _key(tensor: torch.Tensor) -> int | None:
    try:
        return int(key_of(tensor.untyped_storage()))
    except (
        NotImplementedError,
        RuntimeError,
        AttributeError,
    ):  # sparse and wrapped tensors own no plain storage
        return None
