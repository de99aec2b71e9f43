"""Layers that replaced others, or that a checkpoint lacked, and stay random: frozen, or unheld; and
frozen weights that are zero.
"""

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.module_stack import by_largest, live_modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import base_of
from auditor.capture.instruments.torch_private.training import own_children, own_parameters
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.graph import CensusRow

KINDS = (nn.Linear, nn.Embedding, nn.Conv1d, nn.Conv2d, nn.Conv3d)

PRODUCTS = (
    *((nn.functional, name) for name in ("linear", "conv1d", "conv2d", "conv3d")),
    *((owner, "matmul") for owner in (torch, torch.Tensor)),
    (torch.Tensor, "__matmul__"),
)
"""What multiplies its first argument by a weight, the second."""

FIRST = 8
"""Numbers of a weight by which it is known."""

MOST = 10_000
"""Layers whose first weights are remembered."""


@dataclass
class _New:
    layer: weakref.ref[nn.Module]
    at: int
    name: str
    steps: set[int]


class NewLayersProbe(Probe):
    """Writes ``census``: a row for each new layer that ran frozen."""

    name = "new_layers"
    parts = ("census",)
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._first: weakref.WeakKeyDictionary[nn.Module, torch.Tensor] = (
            weakref.WeakKeyDictionary()
        )
        """What the constructor gave each layer."""
        self._new: dict[int, _New] = {}
        self._zeros: dict[int, tuple[weakref.ref[nn.Parameter], dict[int, int | None]]] = {}
        """Frozen weights of zeros, and by step the lines that multiplied by them."""

    def install(self) -> None:
        """Notice what is made, put in another's place, and missing in what is loaded."""
        for owner in {_owner_of(kind, "reset_parameters") for kind in KINDS}:
            self._always.around(owner, "reset_parameters", after=self._made)
        self._always.around(nn.Module, "load_state_dict", after=self._loaded)
        hook = nn.modules.module.register_module_module_registration_hook(
            self.guarded(self._registered)
        )
        self._always.on_undo(hook.remove)

    def start(self) -> None:
        super().start()
        for each in self._new.values():
            each.steps.clear()
        own = (each for module in live_modules() for each in own_parameters(module).values())
        self._zeros = {id(each): (weakref.ref(each), {}) for each in own if _is_frozen_zero(each)}
        for holder, name in PRODUCTS if self._zeros else ():
            self._patches.around(holder, name, before=self._multiplies)
        if self._new:
            for owner in {_owner_of(kind, "forward") for kind in KINDS}:
                self._patches.around(owner, "forward", before=self._runs)

    def stop(self) -> None:
        super().stop()
        for each in self._new.values():
            layer = each.layer()
            if (
                layer is not None
                and each.steps
                and self._is_as_made(layer)
                and self.context.trained
            ):
                row = CensusRow(kind="new", at=each.at, name=type(layer).__name__, other=each.name)
                row.n = sum(weight.numel() for weight in layer.parameters(recurse=False))
                row.steps = len(each.steps)
                self.context.add(row)
            each.steps.clear()
        self._tell_zeros()

    def uninstall(self) -> None:
        super().uninstall()
        self._new.clear()
        self._first.clear()

    def _multiplies(self, _: Any, weight: Any = None, *__: Any, **___: Any) -> None:
        whole = base_of(weight) if isinstance(weight, torch.Tensor) else None
        known = self._zeros.get(id(weight if whole is None else whole))
        if known is not None and self.in_step and torch.is_grad_enabled():
            known[1][self.context.step] = self.context.frames.here()

    def _tell_zeros(self) -> None:
        """One row for all that stayed so, in models that are trained."""
        zeros, self._zeros = self._zeros, {}
        ran = {number: (held, at) for number, (held, at) in zeros.items() if at}
        homes = by_largest(lambda root: [*root.named_parameters()]) if ran else {}
        found = [
            (homes[number][1], at)
            for number, (held, at) in ran.items()
            if number in homes and _is_frozen_zero(alive(held))
            if any(each.requires_grad for each in homes[number][0].parameters())
        ]
        if found and self.context.trained:
            name, lines = found[0]
            row = CensusRow(kind="zero", at=[*lines.values()][-1], name="", other=name)
            row.n, row.steps = len(found), len(lines)
            self.context.add(row)

    def _made(self, _: None, layer: nn.Module) -> None:
        if type(layer) in KINDS and len(self._first) < MOST:
            first = _first(layer)
            if first.device.type == "cpu":  # a GPU would wait, and hold it
                self._first[layer] = first.clone()

    def _registered(self, holder: nn.Module, name: str, layer: Any) -> None:
        """``holder.name = layer``: in place of a layer with weights of other sizes."""
        old = own_children(holder).get(name)
        if (
            old is None
            or layer is None
            or layer is old
            or any(each is old for each in layer.modules())
        ):
            return
        sizes = {each.shape for each in old.parameters() if each.dim() > 1}
        for each in layer.modules() if sizes else ():
            if type(each) in KINDS and each.weight.shape not in sizes and self._is_as_made(each):
                self._note(each, name)

    def _loaded(self, result: Any, module: nn.Module, *_: Any, **__: Any) -> None:
        for key in getattr(result, "missing_keys", ()):
            path, _, last = key.rpartition(".")
            layer = module.get_submodule(path) if last == "weight" else None
            if layer is not None and type(layer) in KINDS and self._is_as_made(layer):
                self._note(layer, path)

    def _note(self, layer: nn.Module, name: str) -> None:
        at = self.context.frames.here()
        if at is not None:
            self._new.setdefault(id(layer), _New(weakref.ref(layer), at, name, set()))

    def _is_as_made(self, layer: nn.Module) -> bool:
        """Its weight is what the constructor gave it."""
        first, now = self._first.get(layer), _first(layer)
        return first is not None and torch.equal(first.to(now.dtype), now.to(first.device))

    def _runs(self, layer: nn.Module, *_: Any, **__: Any) -> None:
        known = self._new.get(id(layer)) if self.in_step and torch.is_grad_enabled() else None
        if known is not None and known.layer() is layer:
            if any(each.requires_grad for each in layer.parameters(recurse=False)):
                self._new.pop(id(layer))
            else:
                known.steps.add(self.context.step)


def _is_frozen_zero(weight: Any) -> bool:
    if type(weight) is not nn.Parameter or weight.requires_grad or weight.dim() < 2:
        return False
    values = weight.detach()
    if values.is_meta or values.layout is not torch.strided or values.element_size() == 1:
        return False  # of 8 bits: torch cannot tell
    return bool(values.numel() and not values.reshape(-1)[:FIRST].any() and not values.any())


def _first(layer: Any) -> torch.Tensor:
    return plain(layer.weight.detach()).reshape(-1)[:FIRST]


def _owner_of(kind: type, name: str) -> type:
    """The class that defines a method."""
    return next(each for each in kind.__mro__ if name in vars(each))
