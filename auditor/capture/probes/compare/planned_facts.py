"""What a program's step is made of, as far as ``audit plan`` can change it: blocks that repeat,
optimizers and what they take.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

SHARE = 0.5
"""Of the parameters that repeated blocks hold at most, a class must hold so many to be the one that
is checkpointed.
"""

SETTINGS = ("foreach", "fused")
"""Arguments of torch's optimizers that choose how the same step is computed."""


@dataclass(frozen=True)
class Blocks:
    """Modules of one class that follow each other. ``size`` are bytes of the parameters of the
    largest, ``total`` of all.
    """

    kind: type[nn.Module]
    n: int
    size: int
    total: int

    @property
    def name(self) -> str:
        """The class, with its module."""
        return class_name(self.kind)


def class_name(kind: type) -> str:
    """``package.module:Outer.Inner``."""
    return f"{kind.__module__}:{kind.__qualname__}"


def repeated_blocks(model: nn.Module) -> Blocks | None:
    """The class of blocks that a ModuleList or Sequential of the model repeats and that holds most
    of it; None where nothing repeats. Of classes inside each other the smaller one is taken.
    """
    found: dict[type[nn.Module], dict[int, nn.Module]] = {}
    for each in model.modules():
        if isinstance(each, (nn.ModuleList, nn.Sequential)):
            for kind, children in _alike(each):
                found.setdefault(kind, {}).update((id(child), child) for child in children)
    told = [_told(kind, list(blocks.values())) for kind, blocks in found.items()]
    told = [blocks for blocks in told if blocks.total]
    most = max((blocks.total for blocks in told), default=0)
    large = [blocks for blocks in told if blocks.total >= SHARE * most]
    return max(large, key=lambda blocks: blocks.n, default=None)


def _alike(container: nn.Module) -> Iterator[tuple[type[nn.Module], list[nn.Module]]]:
    """Children of one class that are made of modules themselves, where there are several."""
    by_class: dict[type[nn.Module], list[nn.Module]] = {}
    for child in container.children():
        if next(child.children(), None) is not None and not _is_container(child):
            by_class.setdefault(type(child), []).append(child)
    return ((kind, children) for kind, children in by_class.items() if len(children) > 1)


def _is_container(module: nn.Module) -> bool:
    """Whether it is torch's own list of modules, which others may be as well."""
    return type(module) in (nn.ModuleList, nn.ModuleDict, nn.Sequential)


def _told(kind: type[nn.Module], blocks: list[nn.Module]) -> Blocks:
    sizes = [_bytes(block) for block in blocks]
    return Blocks(kind, len(blocks), max(sizes), sum(sizes))


def _bytes(module: nn.Module) -> int:
    return sum(each.numel() * each.element_size() for each in module.parameters())


def has_float32(module: nn.Module) -> bool:
    """Whether any of its parameters to train is in float32."""
    return any(p.requires_grad and p.dtype is torch.float32 for p in module.parameters())


def optimizer_classes() -> Iterator[tuple[type[Optimizer], tuple[str, ...]]]:
    """Torch's own optimizers, and which of :data:`SETTINGS` each takes."""
    classes = [each for each in vars(torch.optim).values() if isinstance(each, type)]
    for kind in dict.fromkeys(classes):
        if issubclass(kind, Optimizer) and "__init__" in vars(kind):
            yield kind, taken_by(kind)


def taken_by(kind: type) -> tuple[str, ...]:
    """Which of :data:`SETTINGS` the class takes by name."""
    given = inspect.signature(kind.__init__).parameters  # type: ignore[misc]  # of a class, not of an instance
    return tuple(name for name in SETTINGS if name in given)


def settings_of(optimizer: Any, *, on: bool) -> list[str]:
    """Settings that are on (or off) in the optimizer's first group."""
    groups = getattr(optimizer, "param_groups", ())
    first = groups[0] if groups else {}
    return [name for name in SETTINGS if first.get(name) is on]
