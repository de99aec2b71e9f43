"""What is known of tensors, kept by storage, so that views share it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Generic, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import key_of

T = TypeVar("T")

storage_of = torch.Tensor.untyped_storage
"""As it is before a probe watches who asks for it."""


class Place:
    """A tensor's storage as a key: no other has it while somebody holds :attr:`reference`."""

    __slots__ = ("_reference", "_storage", "_tensor", "key")

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor  # held, so that its id stays its own
        self._reference: StorageWeakRef | None = None
        self.key: int | None
        """None of a tensor without a storage of its own (sparse, wrapped)."""
        try:
            self._storage = storage_of(plain(tensor))
            self.key = int(key_of(self._storage))
        except (NotImplementedError, RuntimeError, AttributeError):
            self.key = None

    @property
    def reference(self) -> StorageWeakRef:
        """Weak: memory is freed as ever, but its address is not used again. Only of a place with a
        key.
        """
        if self._reference is None:
            self._reference = StorageWeakRef(self._storage)
        return self._reference

    @property
    def nbytes(self) -> int:
        """Bytes of the storage; 0 without one."""
        return 0 if self.key is None else int(self._storage.nbytes())


class OneLook(threading.local):
    """Inside, a tensor is asked for its storage once, whoever wants to know: no operator runs that
    could give it another. Keeps the tensors alive, so it must be left before the program goes on.
    """

    places: dict[int, Place] | None = None

    def __enter__(self) -> None:
        self.places = {}

    def __exit__(self, *_: object) -> None:
        self.places = None


ONE_LOOK = OneLook()


def place_of(tensor: torch.Tensor) -> Place:
    """Where the tensor's storage is."""
    places = ONE_LOOK.places
    if places is None:
        return Place(tensor)
    place = places.get(id(tensor))
    if place is None:
        place = places[id(tensor)] = Place(tensor)
    return place


def storage_key(tensor: torch.Tensor) -> int | None:
    """By which its storage is known as long as it lives; None of a tensor without one."""
    return place_of(tensor).key


class Storages(Generic[T]):
    """One fact about each of some storages. Holds them weakly, and none of their addresses is used
    again while the fact is kept.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[T, StorageWeakRef]] = {}

    def of(self, tensor: torch.Tensor) -> T | None:
        """What is known of the tensor's storage."""
        if not self._held:
            return None
        entry = self._held.get(place_of(tensor).key)  # type: ignore[arg-type]  # None: no entry
        return None if entry is None else entry[0]

    def lay(self, tensor: torch.Tensor, fact: T) -> None:
        """Know this of it from now on; of a tensor without a storage nothing is kept."""
        place = place_of(tensor)
        if place.key is not None:
            self._held[place.key] = fact, place.reference

    def drop(self, tensor: torch.Tensor) -> None:
        """Know nothing of it from now on."""
        if self._held:
            self._held.pop(place_of(tensor).key, None)  # type: ignore[arg-type]

    def items(self) -> Iterator[tuple[int, T, bool]]:
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
