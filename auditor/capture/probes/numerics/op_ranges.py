"""Numerics: in which dtype and range delicate operators run, a few steps long."""

from __future__ import annotations

import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.op_ranges_log import CallFacts, OpRangesLog
from auditor.capture.probes.numerics.op_ranges_watch import OpRangesWatch
from auditor.capture.probes.numerics.singular_gradients import SingularGradients
from auditor.capture.probes.operator_probe import OperatorProbe

SMALL = 4096
"""Elements of a loss that are looked at, at most."""


class OpRangesProbe(OperatorProbe):
    """Writes ``numerics`` when its pass is over.

    Below autograd and autocast, so that dtypes are those that ran. Ranges are reduced on the device
    and read at the end of the pass. It slows the step several times and changes no result.
    """

    name = "numerics"
    parts = ("numerics",)
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "the numerics of some operators were not seen"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log = OpRangesLog()
        self._poles: SingularGradients | None = None
        self._losses: list[tuple[int, torch.Tensor]] = []

    def watch(self) -> None:
        """Follow operators, and the backward."""
        BACKWARD_HOOKS.add(self)
        self._patches.on_undo(lambda: BACKWARD_HOOKS.remove(self))
        watch = OpRangesWatch(self._log, self.here, lambda: self.context.step, self.fail)
        self._poles = watch.poles
        self.enter(watch)

    def step_end(self) -> None:
        """See whether its losses are finite; forget what led to the step's tensors."""
        self._log.trails.clear()
        for at, loss in self._losses:
            dtype = str(loss.dtype).removeprefix("torch.")
            entry = self._log.entry(CallFacts(at, "loss", "backward", dtype))
            entry.saw(self.context.step, loss)
            entry.ended(loss)
        self._losses.clear()
        if self._poles is not None:
            self._poles.forget()

    def stop(self) -> None:
        """Leave the watch; then read the ranges and write the rows."""
        watched = bool(self._patches)
        self._patches.undo()
        if watched:
            self.context.writer.touch("numerics")
            for row in (
                *self._log.rows(),
                *(self._poles.rows() if self._poles is not None else ()),
            ):
                self.context.add(row)
        self._log, self._poles = OpRangesLog(), None
        self._losses.clear()

    # -- what happens ------------------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        """What the backward begins at is the loss."""
        if self.context.in_step and not call.nested:
            self._log.reached_loss(call.tensors)
            self._keep_losses(call)
            if self._poles is not None:
                self._poles.backward_begins(call)

    def backward_ends(self, call: Backward) -> None:
        """See what the operators that stood on a pole did."""
        if self._poles is not None and not call.nested:
            self._poles.backward_ends()

    def _keep_losses(self, call: Backward) -> None:
        """Of a call that asks for the gradients of all leaves: others begin at what they like."""
        at = self.here()
        if at is None or call.inputs:
            return
        for tensor in call.tensors:
            inner = plain(tensor).detach()
            small = 0 < inner.numel() <= SMALL and inner.is_floating_point()
            if small and inner.layout is torch.strided and not inner.is_meta:
                self._losses.append((at, inner))
