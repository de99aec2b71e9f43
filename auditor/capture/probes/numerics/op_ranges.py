"""Numerics: in which dtype and range delicate operators run, a few steps long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.plain_tensor import plain, tensors
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.op_ranges_log import CallFacts, Entry, OpRangesLog, Trail
from auditor.capture.probes.numerics.singular_gradients import POLES, SingularGradients
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.operator_stream import Call, Operator, Subscriber

# -- op ranges watch -------------------------------------------------------------------------------
# The watch over delicate operators of the forward: which dtype they really ran in, what they were
# given, what came before.

TINY = 1e-2
"""Positive numbers below this that are added, or bound from below, are taken for an epsilon."""

FLOORS = {
    "add": 1,
    "foreach_add": 1,
    "clamp": 1,
    "clamp_min": 1,
    "foreach_clamp_min": 1,
    "maximum": 1,
}
"""Operators that keep a value away from 0, with the position of the number."""

FUNCTIONS = frozenset(
    """
    exp exp2 expm1 log log10 log1p log2 log_softmax log_sigmoid_forward nll_loss_forward
    nll_loss2d_forward binary_cross_entropy binary_cross_entropy_with_logits softplus logsumexp
    """.split()
)
"""Functions whose values leave a narrow dtype, or crowd into its coarse part: torch.autocast runs
them in float32.
"""

SOURCES = frozenset({"sigmoid", "softmax", "exp"})
"""What a logarithm undoes."""

PASSING = frozenset(
    "to_copy clone index gather select masked_select index_select where cat stack squeeze neg".split()
)
"""Operators that hand values on as they are (but for the sign)."""

GROWING = frozenset(
    "mul sum pow square exp cumsum prod native_layer_norm div linalg_vector_norm".split()
)
"""Other operators whose results may leave the range of float16."""

POLAR = frozenset({"div", "pow", "exp"})
"""Those of them whose infinity may be a pole (1 / 0), or which other evidence tells of."""


class OpRangesWatch(Subscriber):
    """Follows the forward and the optimizer, not the backward."""

    in_backward = False

    def __init__(
        self,
        log: OpRangesLog,
        here: Callable[[], int | None],
        step: Callable[[], int],
        on_error: Callable[[Exception], None],
    ) -> None:
        super().__init__(on_error)
        self._log = log
        self.poles = SingularGradients(here, step, plain)
        self._step = step

    # -- one call ----------------------------------------------------------------------------------

    def wants(self, operator: Operator) -> bool:
        return not operator.view

    def before(self, call: Call) -> tuple[list[Trail], Trail | None]:
        """Where the inputs came from, and what the result will have come from."""
        name = call.operator.name
        found = map(self._log.trails.of, call.given) if self._log.trails else ()
        trails = [trail for trail in found if trail is not None]
        epsilon = self._epsilon(call, trails) if name in FLOORS else None
        for trail in trails:
            if trail.epsilon is not None and name not in PASSING:
                trail.epsilon.into.add(name)
        return trails, self._trail(call, trails, epsilon)

    def after(self, call: Call, noted: tuple[list[Trail], Trail | None]) -> None:
        """Lay the trail on, and note what left the range of its dtype."""
        trails, made = noted
        operator, result = call.operator, call.result
        grows = operator.product or operator.name in GROWING
        if operator.name in POLES and isinstance(result, torch.Tensor) and call.graph:
            self.poles.ran(operator.name, call.args, result)
        for tensor in {id(each): each for each in (*call.made, *call.written)}.values():
            if made is not None:
                self._log.trails.lay(tensor, made)
            elif trails:
                self._log.trails.drop(tensor)
            inner = plain(tensor)
            if grows and inner.dtype is torch.float16 and call.graph:
                entry = self._note(call, "output", inner)
                if entry is not None and not _polar(call) and not operator.writes:
                    given = [
                        plain(each).detach() for each in call.given if each.is_floating_point()
                    ]
                    entry.gave(inner.detach(), given)

    def _trail(self, call: Call, trails: list[Trail], epsilon: Entry | None) -> Trail | None:
        operator, given = call.operator, call.given
        first = trails[0] if trails else Trail()
        half = frozenset[Entry]().union(*(trail.half for trail in trails))
        # a softmax that reads half precision works in float32 (autocast runs it on CUDA)
        softmax = operator.name in ("log_softmax", "softmax")
        widens = softmax and len(call.args) > 2 and call.args[2] is True
        function = operator.name in FUNCTIONS and not widens
        if function and given and given[0].is_floating_point() and call.graph:
            guarded = first.epsilon is not None
            inner = plain(given[0])
            entry = self._note(call, "function", inner, feed=first.op, guarded=guarded)
            if entry is not None and entry.facts.dtype in ("float16", "bfloat16"):
                half |= {entry}
        if operator.product:
            return None
        op = _made_by(operator, first)
        kept = epsilon or (first.epsilon if operator.name in PASSING else None)
        return Trail(op, kept, half) if op or kept or half else None

    def _epsilon(self, call: Call, trails: list[Trail]) -> Entry | None:
        number = _number(call.args, FLOORS[call.operator.name])
        values = [tensor for tensor in tensors(call.args[:1]) if tensor.is_floating_point()]
        if number is None or not 0.0 < number < TINY or not values:
            return None
        feed = trails[0].op if trails else ""
        return self._note(call, "epsilon", plain(values[0]), scalar=number, feed=feed)

    def _note(self, call: Call, what: str, tensor: torch.Tensor, **more: Any) -> Entry | None:
        if call.site is None:
            return None
        dtype = str(tensor.dtype).removeprefix("torch.")
        entry = self._log.entry(CallFacts(call.site, what, call.operator.name, dtype, **more))
        entry.saw(self._step(), tensor)
        return entry


def _polar(call: Call) -> bool:
    """True if its infinity may be a pole. A power of a positive exponent has none."""
    operator, args = call.operator, call.args
    if operator.name == "pow" and len(args) > 1 and isinstance(args[1], int | float):
        return args[1] <= 0
    return operator.name in POLAR


def _made_by(operator: Operator, first: Trail) -> str:
    if operator.name in SOURCES:
        return operator.name
    if operator.name == "sum" and first.op == "exp":
        return "sum of exp"
    return first.op if operator.name in PASSING or operator.name in FLOORS else ""


def _number(args: tuple[Any, ...], position: int) -> float | None:
    """The Python number here, or that of a CPU tensor of one (``torch.tensor(1e-8)``)."""
    value = args[position] if len(args) > position else None
    if (
        type(value) is torch.Tensor
        and value.dim() == 0
        and value.device.type == "cpu"
        and not value.requires_grad
    ):
        return float(value)
    return float(value) if isinstance(value, float) else None


# -- op ranges -------------------------------------------------------------------------------------

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
        self.watch_backward(self._patches)
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
        super().stop()
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
