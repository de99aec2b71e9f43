"""The watch over delicate operators of the forward: which dtype they really ran in, what they were
given, what came before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.dispatch_modes import OperatorMode
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.instruments.torch_private.dispatch import schema_of
from auditor.capture.probes.numerics.op_ranges_log import CallFacts, Entry, OpRangesLog, Trail
from auditor.capture.probes.numerics.singular_gradients import POLES, SingularGradients
from auditor.capture.probes.sync.origin_modes import tensors

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

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "embedding", "mv", "dot")
PRODUCT_PARTS = ("convolution", "scaled_dot_product", "lstm", "gru", "norm_backward")
"""What begins a new trail: the loss is what follows the last of them."""

GROWING = frozenset(
    "mul sum pow square exp cumsum prod native_layer_norm div linalg_vector_norm".split()
)
"""Other operators whose results may leave the range of float16."""

POLAR = frozenset({"div", "pow", "exp"})
"""Those of them whose infinity may be a pole (1 / 0), or which other evidence tells of."""


class Operator:
    """What is constant about an operator."""

    def __init__(self, func: Any) -> None:
        self.schema = schema_of(func)
        self.name: str = self.schema.name.partition("::")[2].strip("_")
        self.view = any(
            r.alias_info is not None and not r.alias_info.is_write for r in self.schema.returns
        )
        self.floor = FLOORS.get(self.name)
        self.function = self.name in FUNCTIONS
        self.product = self.name in PRODUCTS or any(part in self.name for part in PRODUCT_PARTS)
        self.grows = self.product or self.name in GROWING
        self._writes = [
            i
            for i, a in enumerate(self.schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]

    @property
    def writes(self) -> bool:
        """True if it changes what it is given."""
        return bool(self._writes)

    def written(self, args: tuple[Any, ...]) -> Iterator[torch.Tensor]:
        """Tensors that a call writes into."""
        for index in self._writes:
            yield from tensors(args[index : index + 1])


@dataclass(frozen=True)
class Call:
    """One call, before its operator ran."""

    operator: Operator
    graph: bool
    """Its result has a gradient."""
    trails: tuple[Trail, ...]
    made: Trail | None


class OpRangesMode(OperatorMode):
    """Follows the forward and the optimizer, not the backward."""

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
        self._here = here
        self._step = step
        self._operators: dict[Any, Operator] = {}

    def watches(self, func: Any) -> bool:
        """Not in a backward."""
        return super().watches(func) and current_node() is None

    # -- one call ----------------------------------------------------------------------------------

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Where the inputs came from; None of a view."""
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if operator.view:
            return None
        given = list(tensors(args))
        trails = tuple(
            trail for tensor in given if (trail := self._log.trails.of(plain(tensor))) is not None
        )
        graph = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)
        epsilon = self._epsilon(operator, args, trails) if operator.floor is not None else None
        for trail in trails:
            if trail.epsilon is not None and operator.name not in PASSING:
                trail.epsilon.into.add(operator.name)
        made = self._trail(
            operator, given, trails, epsilon, graph=graph and not _widens(operator, args)
        )
        return Call(operator, graph, trails, made)

    def after(self, call: Call, args: tuple[Any, ...], result: Any) -> None:
        """Lay the trail on, and note what left the range of its dtype."""
        outputs = {
            id(tensor): tensor for tensor in (*tensors((result,)), *call.operator.written(args))
        }
        if call.graph and call.operator.name in POLES and isinstance(result, torch.Tensor):
            self.poles.ran(call.operator.name, args, result)
        for tensor in outputs.values():
            inner = plain(tensor)
            if call.made is not None or call.trails:
                self._log.trails.lay(inner, call.made)
            if call.graph and call.operator.grows and inner.dtype is torch.float16:
                entry = self._note("output", call.operator.name, inner)
                if (
                    entry is not None
                    and not _polar(call.operator, args)
                    and not call.operator.writes
                ):
                    entry.gave(
                        inner.detach(),
                        [
                            plain(each).detach()
                            for each in tensors(args)
                            if each.is_floating_point()
                        ],
                    )

    def _trail(
        self,
        operator: Operator,
        given: list[torch.Tensor],
        trails: tuple[Trail, ...],
        epsilon: Entry | None,
        *,
        graph: bool,
    ) -> Trail | None:
        first = trails[0] if trails else Trail()
        half = frozenset().union(*(trail.half for trail in trails))
        if operator.function and graph and given and given[0].is_floating_point():
            guarded = first.epsilon is not None
            entry = self._note(
                "function", operator.name, plain(given[0]), feed=first.op, guarded=guarded
            )
            if entry is not None and entry.facts.dtype in ("float16", "bfloat16"):
                half |= {entry}
        if operator.product:
            return None
        op = _made_by(operator, first)
        kept = epsilon or (first.epsilon if operator.name in PASSING else None)
        return Trail(op, kept, half) if op or kept or half else None

    def _epsilon(
        self, operator: Operator, args: tuple[Any, ...], trails: tuple[Trail, ...]
    ) -> Entry | None:
        number = _number(args, operator.floor or 0)
        values = [tensor for tensor in tensors(args[:1]) if tensor.is_floating_point()]
        if number is None or not 0.0 < number < TINY or not values:
            return None
        feed = trails[0].op if trails else ""
        return self._note("epsilon", operator.name, plain(values[0]), scalar=number, feed=feed)

    def _note(self, what: str, op: str, tensor: torch.Tensor, **more: Any) -> Entry | None:
        at = self._here()
        if at is None:
            return None
        entry = self._log.entry(
            CallFacts(at, what, op, str(tensor.dtype).removeprefix("torch."), **more)
        )
        entry.saw(self._step(), tensor)
        return entry


def _polar(operator: Operator, args: tuple[Any, ...]) -> bool:
    """True if its infinity may be a pole. A power of a positive exponent has none."""
    if operator.name == "pow" and len(args) > 1 and isinstance(args[1], int | float):
        return args[1] <= 0
    return operator.name in POLAR


def _widens(operator: Operator, args: tuple[Any, ...]) -> bool:
    """Whether a softmax reads half precision and works in float32 (``half_to_float``): so autocast
    runs it on CUDA.
    """
    return operator.name in ("log_softmax", "softmax") and len(args) > 2 and args[2] is True


def _made_by(operator: Operator, first: Trail) -> str:
    if operator.name in SOURCES:
        return operator.name
    if operator.name == "sum" and first.op == "exp":
        return "sum of exp"
    return first.op if operator.name in PASSING or operator.floor is not None else ""


def _number(args: tuple[Any, ...], position: int) -> float | None:
    """The Python number at this position, or that of a CPU tensor of one
    (``torch.tensor(1e-8)``).
    """
    value = args[position] if len(args) > position else None
    if (
        type(value) is torch.Tensor
        and value.dim() == 0
        and value.device.type == "cpu"
        and not value.requires_grad
    ):
        return float(value)
    return float(value) if isinstance(value, float) else None
