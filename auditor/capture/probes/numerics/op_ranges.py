"""Numerics: in which dtype and range delicate operators run, a few steps long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward, Node
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import plain, tensors
from auditor.capture.instruments.storages import Storages
from auditor.capture.instruments.torch_private.autograd import next_number, number_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.recordings.schema.numerics import NumericRow

NODES = 10_000
"""Calls of one step that are followed at most."""

Holes = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Where an operator's derivative is not finite, from the operand and the result."""


def _at_zero(operand: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return operand == 0


def _from_zero_down(operand: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return operand <= 0


def _from_one_up(operand: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    return operand.abs() >= 1


POLES: dict[str, tuple[int, Holes]] = {
    "sqrt": (0, _from_zero_down),
    "rsqrt": (0, _from_zero_down),
    "log": (0, _from_zero_down),
    "log2": (0, _from_zero_down),
    "log10": (0, _from_zero_down),
    "pow": (0, _from_zero_down),
    "reciprocal": (0, _at_zero),
    "div": (1, _at_zero),
    "acos": (0, _from_one_up),
    "asin": (0, _from_one_up),
    "exp": (0, lambda operand, result: torch.isinf(result)),
}
"""By operator: the operand that decides, and where it is bad. A norm's gradient at 0 is 0."""


@dataclass(eq=False)
class SingularPoint:
    """Calls of one operator at one line. Flags stay on their device until the pass is over."""

    entry: Entry
    hits: list[tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Step, whether a gradient became non-finite and reached a parameter, whether only 0 came."""

    def row(self) -> NumericRow | None:
        """As the part ``numerics`` holds it; None if nothing happened. A host sync on a GPU."""
        hit = [(step, bool(unasked)) for step, bad, unasked in self.hits if bool(bad)]
        if not hit:
            return None
        row = self.entry.told()
        row.steps, row.unasked = len({step for step, _ in hit}), all(unasked for _, unasked in hit)
        return row


@dataclass
class _Backward:
    """A backward under way: what its nodes did, and the parameters that it ends at."""

    parameters: list[torch.Tensor]
    handles: list[Any] = field(default_factory=list)
    seen: list[tuple[SingularPoint, torch.Tensor, torch.Tensor]] = field(default_factory=list)


class SingularGradients:
    """Follows such calls from the forward into the backward; gradients stay as they are."""

    def __init__(
        self,
        here: Callable[[], int | None],
        step: Callable[[], int],
        plain: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._here = here
        self._step = step
        self._plain = plain
        self._poles: dict[tuple[Any, ...], SingularPoint] = {}
        self._nodes: dict[int, tuple[SingularPoint, torch.Tensor]] = {}
        self._running: _Backward | None = None

    def ran(self, name: str, args: tuple[Any, ...], result: torch.Tensor) -> None:
        """An operator of :data:`POLES` ran, with a gradient: this thread's latest node."""
        position, holes = POLES[name]
        operand = args[position] if len(args) > position else None
        following = next_number()
        if not following or len(self._nodes) >= NODES or not isinstance(operand, torch.Tensor):
            return
        exponent = args[1] if name == "pow" else 0.0
        if not isinstance(exponent, (int, float)) or (
            name == "pow" and (exponent >= 1 or exponent == 0)
        ):
            return
        inner, at = self._plain(operand).detach(), self._here()
        if (
            at is None
            or not inner.is_floating_point()
            or inner.layout is not torch.strided
            or inner.is_meta
            or inner.numel() == 0
        ):
            return
        dtype = str(inner.dtype).removeprefix("torch.")
        key = at, name, dtype, float(exponent)
        pole = self._poles.get(key)
        if pole is None:
            entry = Entry(at=at, what="gradient", op=name, dtype=dtype, scalar=float(exponent))
            pole = self._poles[key] = SingularPoint(entry)
        pole.entry.saw(self._step(), inner)
        self._nodes[following - 1] = (
            pole,
            torch.isfinite(inner).all() & holes(inner, self._plain(result).detach()).any(),
        )

    def backward_begins(self, call: Backward) -> None:
        """Hook the nodes of the calls that were seen."""
        if not self._nodes or self._running is not None:
            return
        walked = call.walked
        leaves = [leaf.variable for leaf in walked.leaves]
        running = self._running = _Backward(
            [leaf for leaf in leaves if isinstance(leaf, torch.nn.Parameter)]
        )
        for node in walked.nodes:
            known = self._nodes.get(number_of(node))
            if known is not None:
                running.handles.append(self._hooked(node, running, *known))

    def _hooked(
        self, node: Node, running: _Backward, pole: SingularPoint, stands: torch.Tensor
    ) -> Any:
        def ran(outgoing: Any, incoming: Any) -> None:
            # gradients are the user's, and so is this backward
            with LOOKING, contextlib.suppress(Exception), torch.no_grad():
                came = [self._plain(each) for each in incoming if each is not None]
                went = [self._plain(each) for each in outgoing if each is not None]
                if len(came) == 1 and went:
                    running.seen.append((pole, *_makes_nonfinite(stands, came[0], went)))

        return node.register_hook(ran)

    def backward_ends(self) -> None:
        """Unhook them, and see what reached the parameters."""
        running, self._running = self._running, None
        if running is None:
            return
        for handle in running.handles:
            handle.remove()
        gradients = [self._plain(each.grad) for each in running.parameters if each.grad is not None]
        finite = [torch.isfinite(each).all() for each in gradients if each.layout is torch.strided]
        if not running.seen or not finite:
            return
        reached = ~torch.stack([each.to(finite[0].device) for each in finite]).all()
        for pole, bad, unasked in running.seen:
            pole.hits.append((self._step(), bad & reached.to(bad.device), unasked))

    def forget(self) -> None:
        """The step is over."""
        self._nodes.clear()

    def rows(self) -> list[NumericRow]:
        """What was seen."""
        return [row for pole in self._poles.values() if (row := pole.row()) is not None]


def _makes_nonfinite(
    stands: torch.Tensor, came: torch.Tensor, went: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a node made a finite gradient non-finite on its pole, and only where 0 came in."""
    finite = torch.stack([torch.isfinite(each).all() for each in went]).all()
    asked = [
        (~torch.isfinite(each) & (came != 0)).any() for each in went if each.shape == came.shape
    ]
    unasked = ~torch.stack(asked).any() if asked else torch.zeros_like(finite)
    return stands & torch.isfinite(came).all() & ~finite, unasked


class Entry:
    """One kind of call at one place: its row, and the range of values, which stays on its device."""

    def __init__(self, **facts: Any) -> None:
        self.row = NumericRow(**facts, n=0, steps=0, least=None, greatest=None, into=[], loss=False)
        self._steps: set[int] = set()
        self._range: tuple[torch.Tensor, torch.Tensor] | None = None
        self._overflowed: torch.Tensor | None = None
        """Calls that gave an infinity of finite arguments; None if nothing counts them."""

    def saw(self, step: int, tensor: torch.Tensor) -> None:
        """One more call. Nothing is read on the host."""
        self.row.n += 1
        self._steps.add(step)
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

    def told(self) -> NumericRow:
        """The row, whole. Reads the range: a host sync on a GPU."""
        if self._range is not None:
            self.row.least, self.row.greatest = (_json(float(each)) for each in self._range)
        if self._overflowed is not None:
            self.row.overflowed = int(self._overflowed)
        self.row.steps = len(self._steps)
        return self.row


def _json(number: float) -> float | str:
    return number if abs(number) < float("inf") else str(number)


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
        self._entries: dict[tuple[Any, ...], Entry] = {}
        self.trails: Storages[Trail] = Storages()

    def entry(self, **facts: Any) -> Entry:
        """The entry with these facts, made at its first call."""
        key = tuple(facts.items())
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = Entry(**facts)
        return entry

    def reached_loss(self, tensors: Iterable[torch.Tensor]) -> None:
        """A backward begins at these tensors."""
        for tensor in tensors:
            trail = self.trails.of(tensor)
            for entry in trail.half if trail is not None else ():
                entry.row.loss = True

    def rows(self) -> list[NumericRow]:
        """All entries as rows, in the order in which they were seen first."""
        return [entry.told() for entry in self._entries.values()]


# -- op ranges watch -------------------------------------------------------------------------------
# The watch over delicate operators of the forward: which dtype they really ran in, what they were
# given, what came before.

TINY = 1e-2
"""Positive numbers below this that are added, or bound from below, are taken for an epsilon."""

FLOORS = dict.fromkeys("add foreach_add clamp clamp_min foreach_clamp_min maximum".split(), 1)
"""Operators that keep a value away from 0, with the position of the number."""

FUNCTIONS = frozenset(
    """
    exp exp2 expm1 log log10 log1p log2 log_softmax log_sigmoid_forward nll_loss_forward
    nll_loss2d_forward binary_cross_entropy binary_cross_entropy_with_logits softplus logsumexp
    """.split()
)
"""Functions whose values leave a narrow dtype: torch.autocast runs them in float32."""

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
                into = trail.epsilon.row.into
                into[:] = sorted({*into, name})
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
            if entry is not None and entry.row.dtype in ("float16", "bfloat16"):
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
        entry = self._log.entry(at=call.site, what=what, op=call.operator.name, dtype=dtype, **more)
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
        watch = OpRangesWatch(self._log, self.here, lambda: self.context.step, self.missed)
        self._poles = watch.poles
        self.enter(watch)

    def step_end(self) -> None:
        """See whether its losses are finite; forget what led to the step's tensors."""
        self._log.trails.clear()
        for at, loss in self._losses:
            dtype = str(loss.dtype).removeprefix("torch.")
            entry = self._log.entry(at=at, what="loss", op="backward", dtype=dtype)
            entry.saw(self.context.step, loss)
            entry.ended(loss)
        self._losses.clear()
        if self._poles is not None:
            self._poles.forget()

    def stop(self) -> None:
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
