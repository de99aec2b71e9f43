"""Tensors with gradients that no optimizer, or no module, holds: they stay as is, or unsaved."""

import sys
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.assignment_sites import Found, Sources, TensorPath
from auditor.capture.instruments.autograd_graph import Backward, node_of, walk
from auditor.capture.instruments.live_objects import alive, one_look
from auditor.capture.instruments.module_stack import by_largest, live_modules
from auditor.capture.instruments.object_search import ObjectSearch
from auditor.capture.instruments.replaced_modules import ReplacedModules
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.instruments.user_frames import source_path
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.numerics.nonfinite import homes_of
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

from ..rows import StrayRow

SAMPLED = 1 << 20
"""Elements of a tensor that are kept to see whether it changes; of larger ones every n-th."""

KEPT = 1 << 25
"""Elements kept at most (128 MiB of float32): whether the rest changes stays unknown."""

STEPS = 4
"""Operations at most from a leaf to what a variable holds of it."""

LEAVES = 4096
"""Leaves that are followed at most, and rows that are written."""


@dataclass
class _Leaf:
    """A leaf that a backward reached. The tensor is not kept: a batch dies with its step."""

    tensor: weakref.ref[torch.Tensor]
    at: int | None
    fed: int = 0
    """Steps that left it with a gradient."""
    last: int = -1
    """Number of the last of them."""
    gradient: tuple[int, int] = (0, 0)
    """Identity and version of its gradient after the last backward."""
    touched: int = 0
    """Times that its gradient was cleared or changed between two backwards."""
    asked: bool = False
    """The program asked for its gradient (``torch.autograd.grad``, ``backward(inputs=...)``)."""
    before: torch.Tensor | None = None
    """Its values, sampled after the second step."""


class LeavesOutsideOptimizerProbe(Probe):
    """Writes ``strays``, when the pass is over.

    Nothing of a tensor is read inside a step: its version counter tells whether a gradient was
    cleared.
    """

    name = "strays"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._leaves: dict[int, _Leaf] = {}
        self._of_call: list[_Leaf] = []
        self._optimized: set[int] = set()
        self._replaced = ReplacedModules(context.frames)

    def install(self) -> None:
        """Notice which modules take others' places."""
        self._always.on_undo(self._replaced.watch(self.guarded))

    def start(self) -> None:
        self._leaves.clear()
        self._optimized = _optimized()
        super().start()

    def stop(self) -> None:
        super().stop()
        leaves, self._leaves = self._leaves, {}
        fed = [leaf for leaf in leaves.values() if leaf.fed > 1 and alive(leaf.tensor) is not None]
        if fed:
            self._write(fed)

    # -- while the step runs -----------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        """Note the graph's leaves, and whether their gradients were read since the last one."""
        if call.nested or not self.context.in_step:
            return
        self._of_call = [
            leaf for node in call.walked.leaves if (leaf := self._leaf(node.variable)) is not None
        ]
        for leaf in self._of_call:
            if leaf.fed and _gradient(leaf) != leaf.gradient:
                leaf.touched += 1
        for leaf in walk(_nodes(call.inputs)).leaves if call.inputs else ():
            self._ask(leaf.variable)
        for each in call.inputs:
            self._ask(each)

    def backward_ends(self, call: Backward) -> None:
        """Note which of them have a gradient now."""
        if call.nested or not self.context.in_step:
            return
        for leaf in self._of_call:
            leaf.gradient = _gradient(leaf)
            if leaf.gradient != (0, 0) and leaf.last != self.context.step:
                leaf.fed, leaf.last = leaf.fed + 1, self.context.step
        self._of_call = []

    def step_end(self) -> None:
        """Forget what died with the step; keep values of what is in no optimizer."""
        self._leaves = {
            number: leaf for number, leaf in self._leaves.items() if alive(leaf.tensor) is not None
        }
        kept = sum(leaf.before.numel() for leaf in self._leaves.values() if leaf.before is not None)
        for number, leaf in self._leaves.items():
            tensor = alive(leaf.tensor)
            if (
                leaf.fed > 1
                and leaf.before is None
                and number not in self._optimized
                and tensor is not None
                and kept < KEPT
            ):
                leaf.before = _sample(tensor)
                kept += leaf.before.numel()

    def _leaf(self, tensor: torch.Tensor) -> _Leaf | None:
        leaf = self._leaves.get(id(tensor))
        if leaf is None or alive(leaf.tensor) is not tensor:
            if len(self._leaves) >= LEAVES:
                return None
            leaf = self._leaves[id(tensor)] = _Leaf(weakref.ref(tensor), self.context.frames.here())
        return leaf

    def _ask(self, tensor: Any) -> None:
        leaf = self._leaf(tensor) if isinstance(tensor, torch.Tensor) and tensor.is_leaf else None
        if leaf is not None:
            leaf.asked = True

    # -- when the pass is over ---------------------------------------------------------------------

    def _write(self, fed: list[_Leaf]) -> None:
        with one_look():
            optimized = _optimized()
            homes = homes_of([each for leaf in fed if (each := alive(leaf.tensor)) is not None])
            models = by_largest(lambda root: [*root.named_parameters()])
        alone = [leaf for leaf in fed if id(alive(leaf.tensor)) not in homes]
        found, results = self._holders(alone) if alone else ({}, set())
        found |= _in_plain_containers(
            {id(alive(leaf.tensor)) for leaf in fed} - found.keys() - optimized
        )
        beside = sum(
            id(alive(leaf.tensor)) in homes and id(alive(leaf.tensor)) in optimized for leaf in fed
        )
        partly = {id(models[number][0]) for number in optimized & models.keys()}
        for leaf in fed:
            tensor = alive(leaf.tensor)
            if tensor is None or (id(tensor) in homes and id(tensor) in optimized):
                continue
            row = _row(
                leaf,
                tensor,
                homes.get(id(tensor), ""),
                found.get(id(tensor)),
                optimized=id(tensor) in optimized,
                beside=beside,
            )
            row.partly = id(models.get(id(tensor), (None,))[0]) in partly
            put = self._replaced.of(tensor)
            if put is not None and put.lost() & optimized:
                row.put_at, row.put_from = put.at, put.outside
            row.result_of = type(tensor).__name__ if id(tensor) in results else ""
            self.context.add(row)

    def _holders(self, leaves: list[_Leaf]) -> tuple[dict[int, Found], set[int]]:
        """Which variable holds each of them, and which line made it; and those of which a variable
        holds the result of an operation alone.
        """
        wanted = {id(alive(leaf.tensor)) for leaf in leaves}
        sources = Sources()
        reach = ObjectSearch(self.context.frames, wanted=lambda each: _leaf_of(each) in wanted)
        held: dict[int, Found] = {}
        results: dict[int, Found] = {}
        for place, tensors in reach.tensors(self.context.target, sys._getframe(1)).items():
            where = sources.find(place)
            for each in tensors:
                (held if each.is_leaf else results)[_leaf_of(each)] = where
        return results | held, results.keys() - held.keys()


def _leaf_of(tensor: torch.Tensor) -> int:
    """The tensor, or the only one that it was computed from, as an ``id``; else 0."""
    node = node_of(tensor)
    if node is None:
        return id(tensor)
    for _ in range(STEPS):
        before = [each for each, _ in node.next_functions if each is not None]
        if len(before) != 1:
            return 0
        (node,) = before
        if type(node).__name__ == "AccumulateGrad":
            return id(node.variable)
    return 0


def _in_plain_containers(wanted: set[int]) -> dict[int, Found]:
    """Of these parameters, those of modules that another module keeps in a list or a dictionary of
    Python's, which hides them from ``parameters()``; and the line that does.
    """
    found: dict[int, Found] = {}
    sources = Sources()
    for holder in live_modules() if wanted else ():
        for name, value in list(vars(holder).items()):
            kept = value.values() if type(value) is dict else value
            if name.startswith("_") or type(value) not in (list, tuple, dict):
                continue
            inside = {
                id(parameter)
                for each in kept
                if isinstance(each, torch.nn.Module)
                for parameter in each.parameters()
            }
            inside &= wanted
            inside -= {id(each) for each in holder.parameters()} if inside else set()
            if inside:
                place = TensorPath("", "", 0, "self", f".{name}[*]", type(holder), name)
                where = sources.find(place)
                found.update(dict.fromkeys(inside, where))
    return found


def _row(
    leaf: _Leaf,
    tensor: torch.Tensor,
    home: str,
    found: Found | None,
    *,
    optimized: bool,
    beside: int,
) -> StrayRow:
    grad = tensor.grad
    return StrayRow(
        at=leaf.at,
        name=home or (f"{found.name}{found.path}" if found is not None else ""),
        registered=bool(home),
        optimized=optimized,
        shape=list(tensor.shape),
        grad_bytes=grad.numel() * grad.element_size() if grad is not None else 0,
        fed=leaf.fed,
        changed=_changed(leaf.before, _sample(tensor)),
        touched=leaf.touched,
        asked=leaf.asked,
        file=source_path(found.file) if found is not None and found.file else None,
        function=found.function if found is not None else "",
        line=found.line if found is not None else None,
        beside=beside,
    )


def _gradient(leaf: _Leaf) -> tuple[int, int]:
    tensor = alive(leaf.tensor)
    grad = tensor.grad if tensor is not None else None
    return (0, 0) if grad is None else (id(grad), version_of(grad))


def _nodes(tensors: Iterable[Any]) -> list[Any]:
    return [node_of(tensor) for tensor in tensors if isinstance(tensor, torch.Tensor)]


def _changed(before: torch.Tensor | None, now: torch.Tensor) -> bool | None:
    """None if values do not tell: none were kept, NaN, or a null device."""
    if before is None:
        return None
    if (before.dtype, before.device) != (now.dtype, now.device):
        return True
    return not torch.equal(before, now) if torch.equal(before, before.clone()) else None


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().reshape(-1)
    return flat[:: max(1, -(-flat.numel() // SAMPLED))].clone()


def _optimized() -> set[int]:
    """Identities of all tensors that any live optimizer holds, also of one that steps seldom."""
    return {id(tensor) for optimizer in live_optimizers() for tensor in tensors_of(optimizer)}
