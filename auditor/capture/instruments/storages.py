"""What is known of tensors, kept by storage, so that views share it."""

from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import key_of, stored_indices, stored_values

_COMPRESSED_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_COMPRESSED_COLUMNS = (torch.sparse_csc, torch.sparse_bsc)


def storages(tensor: torch.Tensor) -> Iterator[torch.UntypedStorage]:
    """The values' storage, then those of indices; none without a plain storage."""
    for part in parts(tensor):
        yield part.untyped_storage()


def parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that hold the numbers: itself, or values and indices."""
    layout = tensor.layout
    if layout == torch.strided:
        return (tensor,)
    if layout == torch.sparse_coo:
        return stored_values(tensor), stored_indices(tensor)
    if layout in _COMPRESSED_ROWS:
        return tensor.values(), tensor.crow_indices(), tensor.col_indices()
    if layout in _COMPRESSED_COLUMNS:
        return tensor.values(), tensor.ccol_indices(), tensor.row_indices()
    return ()


T = TypeVar("T")

storage_of = torch.Tensor.untyped_storage
"""The method as it is before a probe watches its callers."""


def storage_key(tensor: torch.Tensor) -> int | None:
    """The number of its storage while it lives; None of a tensor without one (sparse, wrapped)."""
    try:
        return key_of(storage_of(plain(tensor)))
    except (NotImplementedError, RuntimeError, AttributeError):
        return None


def storage_bytes(tensor: torch.Tensor) -> int | None:
    """Bytes of its storage; None without one."""
    try:
        return storage_of(plain(tensor)).nbytes()
    except (NotImplementedError, RuntimeError, AttributeError):
        return None


class Storages(Generic[T]):
    """One fact about each of some storages, held weakly; no address is used again meanwhile."""

    def __init__(self) -> None:
        self._held: dict[int | None, tuple[T, StorageWeakRef]] = {}  # None: never a key

    def of(self, tensor: torch.Tensor) -> T | None:
        """What is known of the tensor's storage."""
        if not self._held:  # not to be asked for its storage: maps of what is rare are empty
            return None
        entry = self._held.get(storage_key(tensor))
        return None if entry is None else entry[0]

    def lay(self, tensor: torch.Tensor, fact: T) -> None:
        """Know this of it from now on; of a tensor without a storage nothing is kept."""
        key = storage_key(tensor)
        if key is not None:
            entry = self._held.get(key)
            weak = StorageWeakRef(storage_of(plain(tensor))) if entry is None else entry[1]
            self._held[key] = fact, weak

    def drop(self, tensor: torch.Tensor) -> None:
        """Know nothing of it from now on."""
        if self._held:
            self._held.pop(storage_key(tensor), None)

    def items(self) -> Iterator[tuple[int | None, T, bool]]:
        """Key, fact, and whether the storage is still there."""
        return ((key, fact, not weak.expired()) for key, (fact, weak) in self._held.items())

    def prune(self) -> None:
        """Forget storages that are gone."""
        gone = [key for key, (_, weak) in self._held.items() if weak.expired()]
        for key in gone:
            del self._held[key]

    def clear(self) -> None:
        """Forget all of them."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)
