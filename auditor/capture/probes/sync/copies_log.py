"""The tally of copies to the device: one entry for each place and kind, written as rows when the
step ends.
"""

from __future__ import annotations

import torch

from auditor.capture.instruments.storages import storages
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.sync.reads_stack import Place
from auditor.capture.probes.tally import Counted
from auditor.recordings.schema.sync import CopyRow

PART = "copies"
LOADER_MARK = "_auditor_loader"
"""Attribute of a storage: the number of the loader whose batch it belongs to."""


class CopyLog:
    """Counts copies that the user's step makes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._copies = Counted(context, CopyRow)
        self._batches: list[tuple[CopyRow, torch.Tensor, int]] = []
        """Those of loaders, each with its version when it was copied; held until the step ends."""

    def note(
        self, place: Place, nbytes: int, *, subject: torch.Tensor | None, **facts: bool
    ) -> None:
        """Count a copy of ``nbytes`` of the ``subject`` at ``place``; ``facts`` are ``pinned``,
        ``blocking``, ``constant`` and ``index``.
        """
        at = self._context.frames.number(place.frame, place.via)
        lib = "loader" if place.loader else ""
        loader = None if subject is None else loader_of(subject)
        row = self._copies.of(at=at, lib=lib, loader=loader, rewritten=False, bytes=0, **facts)
        row.n += 1
        row.bytes += nbytes
        if subject is not None and loader is not None:
            self._batches.append((row, subject, version_of(subject)))

    def write(self) -> None:
        """Write what the step copied, and begin again."""
        for row, batch, version in self._batches:
            row.rewritten = row.rewritten or version_of(batch) != version
        self._batches.clear()
        self._copies.write()


def mark_batch(tensor: torch.Tensor, loader: int) -> None:
    """Say which loader a tensor is from; views of the batch share its storage, and so the mark."""
    for storage in storages(tensor):
        setattr(storage, LOADER_MARK, loader)


def loader_of(tensor: torch.Tensor) -> int | None:
    """The number that :func:`mark_batch` gave it; None if it is of no batch."""
    return next((getattr(storage, LOADER_MARK, None) for storage in storages(tensor)), None)
