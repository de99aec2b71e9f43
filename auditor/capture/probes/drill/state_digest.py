"""What a training consists of at a moment: parameters, optimizer state, buffers. Told apart by
digests, looked at for NaN.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.torch_private.tensors import stored_values
from auditor.capture.probes.numerics.nonfinite import names_of

NAMED = 200
"""Names of non-finite tensors in a row of the recording at most; the rest are counted."""

Named = Iterator[tuple[str, torch.Tensor]]


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """Sixteen hexadecimal digits that differ where any bit, shape or dtype does. Copies from a GPU:
    slow there.
    """
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        total.update(_content(tensor.detach()))
    return total.hexdigest()


def _content(tensor: torch.Tensor) -> bytes:
    """Kind, shape and values; only the kind where torch cannot copy the values (meta tensors,
    nested ones).
    """
    try:
        plain = (
            (tensor.to_dense() if tensor.layout is not torch.strided else tensor).cpu().contiguous()
        )
        values = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return f"{plain.dtype}{tuple(plain.shape)}".encode() + values
    except RuntimeError:
        return f"{type(tensor).__name__}{tensor.dtype}".encode()


def finite(tensor: torch.Tensor) -> bool:
    """True if every element is, as integers are, and where torch cannot tell (float8, some sparse
    layouts).
    """
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) or tensor.is_meta:
        return True
    values = (
        stored_values(tensor.detach()) if tensor.layout is torch.sparse_coo else tensor.detach()
    )
    try:
        return bool(torch.isfinite(values).all())
    except RuntimeError:
        return True


def tensors_by_path(value: Any, path: str = "", depth: int = 8) -> Named:
    """Tensors in nested mappings and sequences, as in a checkpoint: ``model.layer.weight``,
    ``optimizer.state.0.exp_avg``.
    """
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth and isinstance(value, Mapping):
        for key, inner in value.items():
            yield from tensors_by_path(inner, f"{path}.{key}" if path else str(key), depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from tensors_by_path(inner, f"{path}[{number}]", depth - 1)
    elif depth and isinstance(value, torch.nn.Module):
        yield from tensors_by_path(value.state_dict(), path, depth - 1)


class Training:
    """The optimizers and outermost modules that were seen, and the tensors that they keep from step
    to step.
    """

    def __init__(self) -> None:
        self.optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self.roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._order: list[weakref.ref[Optimizer]] = []
        self._names: dict[int, str] = {}

    def add(self, optimizer: Optimizer) -> None:
        """An optimizer was made."""
        if optimizer not in self.optimizers:
            self.optimizers.add(optimizer)
            self._order.append(weakref.ref(optimizer))

    def _live(self) -> Iterator[Optimizer]:
        """In the order in which they were made, so that two runs agree."""
        return (optimizer for reference in self._order if (optimizer := reference()) is not None)

    @property
    def parameters(self) -> list[torch.Tensor]:
        """All trainable tensors of all optimizers, each once."""
        found = {
            id(p): p
            for optimizer in self._live()
            for group in _groups(optimizer)
            for p in group["params"]
        }
        return [parameter for parameter in found.values() if parameter.requires_grad]

    @property
    def rates(self) -> list[float]:
        """The learning rate of each parameter group."""
        return [
            float(group["lr"])
            for optimizer in self._live()
            for group in _groups(optimizer)
            if "lr" in group
        ]

    def state(self) -> Named:
        """Tensors of optimizer states."""
        for optimizer in self._live():
            parameters = [
                parameter for group in _groups(optimizer) for parameter in group["params"]
            ]
            for number, parameter in enumerate(parameters):
                for path, tensor in tensors_by_path(optimizer.state.get(parameter, {}), depth=2):
                    yield f"{path} of {self.name(parameter, number)}", tensor

    def buffers(self) -> Named:
        """Buffers of the outermost modules: running statistics and the like."""
        for root in self.roots:
            yield from root.named_buffers()

    def name(self, parameter: Any, number: int) -> str:
        """Qualified name of a parameter, or ``parameter 3``."""
        if id(parameter) not in self._names:
            known = names_of(self.parameters)
            self._names.update(
                {id(p): known.get(id(p), f"parameter {n}") for n, p in enumerate(self.parameters)}
            )
        return self._names.get(id(parameter), f"parameter {number}")

    def bad_parameters(self) -> list[str]:
        """Names of those that are not finite."""
        return [self.name(p, n) for n, p in enumerate(self.parameters) if not finite(p)]

    def bad_gradients(self) -> list[str]:
        """Names of the parameters whose gradient is not finite."""
        return [
            self.name(p, n)
            for n, p in enumerate(self.parameters)
            if p.grad is not None and not finite(p.grad)
        ]

    def gradients(self) -> list[torch.Tensor]:
        """Gradients that hold anything: neither absent nor all zero."""
        return [
            p.grad for p in self.parameters if p.grad is not None and bool(p.grad.detach().any())
        ]


def _groups(optimizer: Optimizer) -> list[dict[str, Any]]:
    return getattr(optimizer, "param_groups", [])  # absent while its own __init__ runs
