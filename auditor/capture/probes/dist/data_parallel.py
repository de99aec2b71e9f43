"""What ``DistributedDataParallel`` averages over the ranks, for every step of an optimizer."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.nn.modules import module as module_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import Backward, Walk
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.compiler import COMPILED_BACKWARD
from auditor.capture.instruments.torch_private.training import is_compiled
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, tensors_of
from auditor.recordings.schema.dist import DataParallelRow, GradientSyncRow

MOST = 64
"""Modules that are followed."""

T = TypeVar("T")


class DataParallelModules(Generic[T]):
    """Follows them from :meth:`install` on, and keeps none alive.

    ``note`` makes what a probe keeps of a module, from its number, in the order in which modules
    were wrapped, and its line: a number in ``sites``, None if it is not known.
    """

    def __init__(self, frames: Frames, note: Callable[[int, int | None], T]) -> None:
        self._frames = frames
        self._note = note
        self._count = 0
        self.each: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """Watch the constructor, until these are undone."""
        patches.around(DistributedDataParallel, "__init__", after=self._on_module)

    def _on_module(self, _: None, module: Any, *args: Any, **kwargs: Any) -> None:
        if self._count < MOST:
            self.each[module] = self._note(self._count, self._frames.here())
            self._count += 1


@dataclass
class _Wrapped:
    """One module, and what was averaged of it since its gradients were cleared or stepped on."""

    number: int
    at: int | None
    parameters: frozenset[int] = frozenset()
    """Identities of those that require gradients: the module keeps them alive."""
    forwarded: bool = False
    """A forward prepared an average, and no backward came since."""
    apart: bool = False
    """Its last forward prepared none, and no backward came since."""
    told: bool = False
    n: int = 0
    last_at: int | None = None
    local: int = 0
    """Backward passes since then whose gradients are this rank's own."""
    local_at: int | None = None
    entered_at: int | None = None
    """Where ``no_sync`` was called last."""
    inside: bool = False
    """Its own forward runs."""
    modules: frozenset[int] = frozenset()
    """Identities of the modules inside."""
    called_at: int | None = None
    """Where one of these was called past it, since the last backward."""
    bypassed: int = 0
    """Backward passes that reached its parameters though none of its forwards came before."""

    def clear(self) -> None:
        self.n = self.local = self.bypassed = 0


class DataParallelProbe(OptimizerProbe):
    """Writes ``data_parallel`` and ``gradient_syncs``.

    A forward outside ``no_sync`` prepares an average, and the next backward that reaches the
    module's parameters makes it. What is called past the wrapper prepares none.
    """

    name = "data_parallel"
    parts = ("data_parallel", "gradient_syncs")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._modules = DataParallelModules(context.frames, _Wrapped)

    def install(self) -> None:
        super().install()
        self._modules.install(self._always)

    def start(self) -> None:
        super().start()
        for one in self._modules.each.values():
            one.clear()
            one.forwarded = one.apart = one.told = one.inside = False
            one.called_at = None
        for module, one in self._modules.each.items():
            one.parameters = _trained(module)
            one.modules = frozenset(map(id, module.module.modules()))
        inner = [each for module in self._modules.each for each in module.modules()]
        # a hook on every module would have what is compiled compiled again
        if inner and not any(map(is_compiled, inner)):
            calls = module_hooks.register_module_forward_pre_hook(self.guarded(self._called))
            keep_hooks(self._patches, calls)
        self._patches.around(
            DistributedDataParallel, "forward", before=self._forward, after=self._forward_ended
        )
        self._patches.around(DistributedDataParallel, "no_sync", before=self._enters)
        for kind in (Optimizer, torch.nn.Module):
            self._patches.around(kind, "zero_grad", after=self._cleared)

    def _forward(self, module: Any, *args: Any, **kwargs: Any) -> None:
        one = self._modules.each.get(module)
        if one is None:
            return
        one.inside = True
        if not torch.is_grad_enabled():
            return
        one.forwarded |= bool(module.require_backward_grad_sync)
        one.apart = not one.forwarded
        one.parameters = _trained(module)

    def _forward_ended(self, _: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        one = self._modules.each.get(module)
        if one is not None:
            one.inside = False

    def _called(self, module: Any, args: Any) -> None:
        for one in self._modules.each.values():
            past = id(module) in one.modules and one.called_at is None and not one.inside
            if past and torch.is_grad_enabled():
                one.called_at = self.context.frames.here()

    def _enters(self, module: Any) -> None:
        one = self._modules.each.get(module)
        if one is not None:
            one.entered_at = self.context.frames.here()

    def backward_begins(self, call: Backward) -> None:
        """Its graph is walked now, while it is there."""
        if not call.nested and self._modules.each:
            _ = call.walked

    def backward_ends(self, call: Backward) -> None:
        """Count it at every module that it averaged."""
        if call.nested or call.failed or call.inputs:
            return
        known = tuple(self._modules.each.values())
        prepared = [one.parameters for one in known if one.forwarded or one.apart]
        for one in known:
            if one.forwarded:
                self._averaged(one, call.walked)
            elif one.apart:
                self._kept_apart(one, call.walked)
            elif all(map(one.parameters.isdisjoint, prepared)):
                self._went_past(one, call.walked)

    def backward_lost(self, error: Exception) -> None:
        self.missed(error)

    def _averaged(self, one: _Wrapped, walked: Walk) -> None:
        reached = not one.parameters.isdisjoint(id(leaf.variable) for leaf in walked.leaves)
        if not reached and not walked.capped:
            return  # of another module
        one.forwarded = False
        one.local = 0  # what was summed up before is averaged with it
        one.n += 1
        one.last_at = self.context.frames.here()

    def _kept_apart(self, one: _Wrapped, walked: Walk) -> None:
        if one.parameters.isdisjoint(id(leaf.variable) for leaf in walked.leaves):
            return
        one.apart = False
        one.local += 1
        one.local_at = self.context.frames.here()

    def _went_past(self, one: _Wrapped, walked: Walk) -> None:
        """A module that is compiled is not seen to be called."""
        called_at, one.called_at = one.called_at, None
        compiled = any(type(node).__name__ == COMPILED_BACKWARD for node in walked.nodes)
        reached = {id(leaf.variable) for leaf in walked.leaves}
        if called_at is None or compiled or one.parameters.isdisjoint(reached):
            return
        one.bypassed += 1
        one.last_at = called_at

    def _cleared(self, _: None, owner: Any, *args: Any, **kwargs: Any) -> None:
        held = tensors_of(owner) if isinstance(owner, Optimizer) else owner.parameters()
        for _module, one in self._with(frozenset(map(id, held))):
            one.clear()

    def after_optimizer(self, optimizer: Optimizer) -> None:
        if not self.watching or not self._modules.each:
            return
        for module, one in self._with(frozenset(map(id, tensors_of(optimizer)))):
            at = one.last_at if one.n or not one.local else one.local_at
            if (one.n or one.local or one.bypassed) and at is not None:
                self._tell(module, one)
                row = GradientSyncRow(number=one.number, at=at, n=one.n, local=one.local)
                row.bypassed = one.bypassed
                if one.local:
                    row.local_at, row.entered_at = one.local_at, one.entered_at
                self.context.add(row)
            one.clear()

    def _with(self, tensors: frozenset[int]) -> list[tuple[Any, _Wrapped]]:
        known = self._modules.each.items()
        return [pair for pair in known if not tensors.isdisjoint(pair[1].parameters)]

    def _tell(self, module: Any, one: _Wrapped) -> None:
        if one.told:
            return
        one.told = True
        row = DataParallelRow(number=one.number, at=one.at, what=type(module.module).__name__)
        row.ranks = module.process_group.size()
        row.bytes = sum(each.nbytes for each in module.parameters() if each.requires_grad)
        self.context.add(row)


def _trained(module: Any) -> frozenset[int]:
    return frozenset(id(each) for each in module.parameters() if each.requires_grad)
