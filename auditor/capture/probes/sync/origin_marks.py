"""Marks on storages: computed from the model or moved to the training device, or known to stay on
the host.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

import torch

from auditor.capture.instruments.storages import Storages, storage_key


class State(enum.Enum):
    """What is known about a storage; no mark means that nothing is."""

    DERIVED = "derived"
    HOST = "host"


DERIVED: Final = State.DERIVED
HOST: Final = State.HOST

HOST_DEVICE: Final = torch.device("cpu")
"""This very object is what ``.device`` of a host tensor returns during the origin pass: equal to
any other CPU device, but recognisable, so that ``torch.zeros(3, device=lengths.device)`` stays on
the host."""


class Origins:
    """Which storages hold values that would be on the GPU in a GPU run.

    Marks are kept by storage, so views share them. A mark holds a weak reference: the storage's
    memory is freed as ever, but its address is not used again while the mark stands.
    """

    def __init__(self) -> None:
        self._marks: Storages[State] = Storages()
        self.computing: list[torch.Tensor] | None = None
        """Arguments of the operator that runs, if one of them is derived: what it computes from
        them inside is, too.
        """

    def state(self, tensor: torch.Tensor) -> State | None:
        """The mark of the tensor's storage, or None."""
        return self._marks.of(tensor)

    def derived(self, tensor: torch.Tensor) -> bool:
        """True if the value was computed from parameters, or from what was moved to the training
        device.
        """
        return (
            tensor.requires_grad
            or isinstance(tensor, torch.nn.Parameter)
            or self.state(tensor) is DERIVED
        )

    def derived_or_computed(self, tensor: torch.Tensor) -> bool:
        """The same inside operators. Of an argument its own mark counts: ``x.masked_fill(mask,
        torch.tensor(0.0))``.
        """
        if self.derived(tensor):
            return True
        return self.computing is not None and storage_key(tensor) not in map(
            storage_key, self.computing
        )

    def mark(self, tensor: torch.Tensor, state: State) -> None:
        """Set the mark; tensors without a storage of their own (meta, sparse) are left out."""
        if self._marks.of(tensor) is not state:
            self._marks.lay(tensor, state)

    def copied_to_host(self, source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        """What ``source.cpu()`` gives: of a derived tensor a copy, as CUDA would make, marked as
        the host's.
        """
        if not self.derived(source):
            return result
        copy = self._copy(source, result)
        self.mark(copy, HOST)
        return copy

    def copied_to_device(
        self, source: torch.Tensor, result: torch.Tensor, *, alias: bool = False
    ) -> torch.Tensor:
        """What ``source.to(device)`` gives, marked derived; a copy, so that the host's original
        keeps its mark.

        ``alias`` keeps the tensor itself. So does anything that autograd may look at by identity.
        """
        if self.derived(source):
            self.mark(result, DERIVED)
            return result
        copy = result if alias or type(source) is not torch.Tensor else self._copy(source, result)
        self.mark(copy, DERIVED)
        return copy

    def _copy(self, source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        key = storage_key(result)
        if key is None or key != storage_key(source):
            return result
        return result.clone()

    def prune(self) -> None:
        """Forget storages that are gone."""
        self._marks.prune()

    def __len__(self) -> int:
        return len(self._marks)


_active: list[Origins] = []


def active() -> Origins | None:
    """The marks of the origin pass that is running in this process, or None."""
    return _active[-1] if _active else None


def activate(origins: Origins) -> Callable[[], Any]:
    """Make ``origins`` the active marks; returns what takes that back."""
    _active.append(origins)

    def deactivate() -> None:
        if origins in _active:
            _active.remove(origins)

    return deactivate
