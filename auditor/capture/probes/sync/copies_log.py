"""The tally of copies to the device: one entry for each place and kind, written as rows when the
step ends.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import torch

from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.sync.reads_stack import Place
from auditor.capture.shadow.storages import storages
from auditor.recordings.schema.sync import CopyRow

PART = "copies"
LOADER_MARK = "_auditor_loader"
"""Attribute of a storage: the number of the loader whose batch it belongs to."""


@dataclass
class _Copied:
    """What one place copies to the device in the step that runs."""

    n: int = 0
    bytes: int = 0
    batches: list[tuple[torch.Tensor, int]] = field(default_factory=list)
    """Those of loaders, each with its version when it was copied; held until the step ends."""


@dataclass(frozen=True)
class CopyKind:
    """What is constant about the copies of one place. ``lib`` is ``loader`` inside a data
    loader.
    """

    at: int
    lib: str
    pinned: bool
    blocking: bool
    constant: bool
    index: bool
    loader: int | None


class CopyLog:
    """Counts copies that the user's step makes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._copies: dict[CopyKind, _Copied] = {}

    def note(
        self,
        place: Place,
        nbytes: int,
        *,
        pinned: bool,
        blocking: bool,
        constant: bool,
        index: bool,
        subject: torch.Tensor | None,
    ) -> None:
        """Count a copy of ``nbytes`` of the ``subject`` at ``place``."""
        loader = None if subject is None else loader_of(subject)
        at = self._context.frames.number(place.frame, place.via)
        lib = "loader" if place.loader else ""
        kind = CopyKind(at, lib, pinned, blocking, constant, index, loader)
        copied = self._copies.setdefault(kind, _Copied())
        copied.n += 1
        copied.bytes += nbytes
        if subject is not None and loader is not None:
            copied.batches.append((subject, version_of(subject)))

    def write(self) -> None:
        """Write what the step copied, and begin again."""
        for kind, copied in self._copies.items():
            if copied.n:
                row = CopyRow(**asdict(kind), n=copied.n, bytes=copied.bytes)
                row.rewritten = any(version_of(each) != was for each, was in copied.batches)
                self._context.add(row)
            copied.n = copied.bytes = 0
            copied.batches.clear()


def mark_batch(tensor: torch.Tensor, loader: int) -> None:
    """Say which loader a tensor is from; views of the batch share its storage, and so the mark."""
    for storage in storages(tensor):
        setattr(storage, LOADER_MARK, loader)


def loader_of(tensor: torch.Tensor) -> int | None:
    """The number that :func:`mark_batch` gave it; None if it is of no batch."""
    return next((getattr(storage, LOADER_MARK, None) for storage in storages(tensor)), None)
