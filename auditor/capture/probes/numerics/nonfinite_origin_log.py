"""Where non-finite values were born: one record each, kept by the storage that holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from auditor.capture.instruments.storages import Storages, storage_bytes
from auditor.recordings.schema.numerics import BirthInput, BirthRow

Phase = Literal["forward", "backward", "optimizer", "input", "parameter", "state"]

Line = tuple[str, int]
"""File and line."""


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
        self._holding: Storages[Birth] = Storages()
        self._parameters: Storages[bool] = Storages()
        self._datasets: dict[int, str] = {}
        """By order of a birth."""
        self._batches: Storages[str] = Storages()

    def note_batch(self, tensor: torch.Tensor, dataset: str) -> None:
        """A loader gave this tensor, which is not finite, of that dataset."""
        birth = self.of(tensor)
        if birth is not None and birth.phase == "input":
            self._datasets[birth.order] = dataset
        elif birth is None:
            self._batches.lay(tensor, dataset)

    def row(self, birth: Birth) -> BirthRow:
        """The same, with the dataset that a loader read it from."""
        row = birth.row()
        row.dataset = self._datasets.get(birth.order, "")
        return row

    def note_parameters(self, tensors: Iterable[torch.Tensor]) -> None:
        """Of these the parameters are seen; their views (a transposed weight) too."""
        for tensor in tensors:
            leaf = tensor.is_leaf and tensor.requires_grad
            if isinstance(tensor, torch.nn.Parameter) or leaf:
                self._parameters.lay(tensor, True)

    def of_parameter(self, tensor: torch.Tensor) -> bool:
        """True for a parameter that was seen, or a view of one."""
        return self._parameters.of(tensor) is not None

    def of(self, tensor: torch.Tensor) -> Birth | None:
        """The birth of what is non-finite in this tensor, if it was seen."""
        return self._holding.of(tensor)

    def hold(self, tensor: torch.Tensor, birth: Birth) -> None:
        """The tensor now holds what was born there. An earlier birth is kept, unless a fill."""
        before = self.of(tensor)
        if before is None or before.fill or before.order > birth.order:
            self._holding.lay(tensor, birth)
        dataset = self._batches.of(tensor) if birth.phase == "input" else None
        if dataset is not None:
            self._datasets[birth.order] = dataset
            self._batches.drop(tensor)

    def finite(self, tensor: torch.Tensor) -> None:
        """A tensor is finite: forget its storage's birth if it covers the storage."""
        if self.of(tensor) is not None and tensor.nbytes >= (storage_bytes(tensor) or 0):
            self._holding.drop(tensor)

    def prune(self) -> None:
        """Forget what is gone."""
        self._holding.prune()

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
