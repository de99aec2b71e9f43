"""Operators that stood on a pole of their derivative, and whether the backward made a finite
gradient non-finite there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward, Node
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.torch_private.autograd import next_number, number_of
from auditor.capture.probes.numerics.op_ranges_log import CallFacts, Entry
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
"""By operator: the operand that decides, and where it is bad. Norms are not here: torch gives 0 for
their gradient at 0.
"""


@dataclass(eq=False)
class SingularPoint:
    """Calls of one operator at one line. Flags stay on their device until the pass is over."""

    entry: Entry
    hits: list[tuple[int, torch.Tensor, torch.Tensor]] = field(default_factory=list)
    """Step, whether a gradient became non-finite here and reached a parameter, whether 0 was all
    that came in there.
    """

    def row(self) -> NumericRow | None:
        """As the part ``numerics`` holds it; None where nothing happened. A host sync on a GPU."""
        hit = [(step, bool(unasked)) for step, bad, unasked in self.hits if bool(bad)]
        if not hit:
            return None
        row = self.entry.row()
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
        self._poles: dict[CallFacts, SingularPoint] = {}
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
        facts = CallFacts(at, "gradient", name, dtype, float(exponent))
        pole = self._poles.setdefault(facts, SingularPoint(Entry(facts)))
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
                    running.seen.append((pole, *_made(stands, came[0], went)))

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


def _made(
    stands: torch.Tensor, came: torch.Tensor, went: list[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a node made a finite gradient non-finite on its pole, and only where 0 came in."""
    finite = torch.stack([torch.isfinite(each).all() for each in went]).all()
    asked = [
        (~torch.isfinite(each) & (came != 0)).any() for each in went if each.shape == came.shape
    ]
    unasked = ~torch.stack(asked).any() if asked else torch.zeros_like(finite)
    return stands & torch.isfinite(came).all() & ~finite, unasked
