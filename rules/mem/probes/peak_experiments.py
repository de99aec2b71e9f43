"""A few steps of a rehearsal with one change each: how much lower is the peak of device memory?"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.data.dataloader_facts import LargestBatches
from auditor.capture.probes.optim.optimizer_hooks import (
    OptimizerProbe,
    groups_of,
    live_optimizers,
    tensors_of,
)
from auditor.runs.plan import LEANER_STEPS

from ..rows import LeanerRow

ENDLESS: Final = 1 << 50
"""Bytes of a card that nothing fills."""

Gradient = tuple[int, int]
"""Identity and version of a gradient; zeros where there is none."""


class PeakExperimentsProbe(OptimizerProbe):
    """Writes ``leaner``: one row for each step of its pass.

    ``gradients`` clears all gradients before the step, where the program itself has cleared them by
    its first backward: then nothing else changes. ``foreach`` makes optimizers step parameter by
    parameter. ``largest`` has loaders give the largest batch of an epoch in the place of the next
    one, on a card without a limit.
    """

    name = "leaner"
    parts = ("leaner",)
    passes = frozenset({"leaner"})
    in_runs = False
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._optimizers: list[Optimizer] = []
        self._stepped: dict[int, Optimizer] = {}
        self._what = ""
        self._touched = 0
        self._at: int | None = None
        self._before: dict[int, Gradient] | None = None
        self._kept: set[int] | None = None
        """Tensors whose gradient was still there at the first backward of a step; None: not
        known.
        """
        self._switched: list[tuple[dict[str, Any], Any]] = []
        self._largest: LargestBatches | None = None
        self._capacity = 0

    def uninstall(self) -> None:
        self._restore()
        super().uninstall()

    def start(self) -> None:
        super().start()
        self._optimizers = live_optimizers()

    def stop(self) -> None:
        """Put back what a step that broke off has left. May be called twice."""
        super().stop()
        self._restore()
        self._optimizers = []
        self._stepped.clear()

    def step_begin(self) -> None:
        """Make the step's change, then begin the peak anew."""
        self._what, self._touched, self._before = (
            LEANER_STEPS[self.context.step % len(LEANER_STEPS)],
            0,
            None,
        )
        if self._what == "gradients":
            self._clear()
        elif self._what == "foreach":
            self._one_by_one()
        elif self._what == "largest":
            if self.context.shadow is not None:
                self.context.shadow.memory.resize(ENDLESS)
                self._largest = LargestBatches(self.context, self._patches)
        elif not self._what:
            self._before = self._gradients()
        if self.context.shadow is not None:
            self.context.shadow.memory.reset_peak()

    def step_end(self) -> None:
        """Write the peak and put back what was changed."""
        shadow = self.context.shadow
        peak = 0 if shadow is None else shadow.memory.counters()["peak_allocated"]
        self._restore()
        largest, self._largest = self._largest, None
        row = LeanerRow(
            at=self._at if largest is None else largest.at,
            what=self._what,
            changed=self._touched if largest is None else largest.of,
            peak_allocated=peak,
            capacity=self._capacity,
        )
        self.context.add(row)

    def backward_begins(self, call: Backward) -> None:
        """Has the program cleared by now what it found at the step's beginning?"""
        before, self._before = self._before, None
        if before is not None and self.context.in_step:
            now = self._gradients()
            self._kept = {
                number
                for number, seen in before.items()
                if seen != (0, 0) and now.get(number) == seen
            }

    def backward_lost(self, error: Exception) -> None:
        """Without the door gradients are left alone."""
        self._kept = None
        super().backward_lost(error)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Notice where it steps."""
        if self.context.pass_name == "leaner" and self._what != "largest":
            self._at = self.context.frames.here()
            self._stepped[id(optimizer)] = optimizer

    def _gradients(self) -> dict[int, Gradient]:
        return {
            id(tensor): _gradient(tensor)
            for optimizer in self._optimizers
            for tensor in tensors_of(optimizer)
        }

    def _clear(self) -> None:
        for optimizer in self._stepped.values():
            tensors = list(tensors_of(optimizer))
            if self._kept is None or not self._kept.isdisjoint(map(id, tensors)):
                continue
            for tensor in tensors:
                self._touched += tensor.grad is not None
                tensor.grad = None

    def _one_by_one(self) -> None:
        for group in (
            group for optimizer in self._stepped.values() for group in groups_of(optimizer)
        ):
            if "foreach" in group and group["foreach"] is not False and not group.get("fused"):
                self._switched.append((group, group["foreach"]))
                group["foreach"] = False
                self._touched += len(group["params"])

    def _restore(self) -> None:
        self._patches.undo()
        if self._what == "largest" and self.context.shadow is not None:
            self._capacity = self.context.shadow.memory.resize(None)
        while self._switched:
            group, value = self._switched.pop()
            group["foreach"] = value


def _gradient(tensor: torch.Tensor) -> Gradient:
    grad = tensor.grad
    return (0, 0) if grad is None else (id(grad), version_of(grad))
