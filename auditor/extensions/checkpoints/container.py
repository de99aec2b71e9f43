"""What every format gives: a tree of plain values and tensors, and the bytes of each storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from auditor.evidence.scans import Format
from auditor.extensions.checkpoints.contents import Storage
from auditor.extensions.checkpoints.marks import Composite


@dataclass
class Container:
    """An opened checkpoint. ``read(storage, first, size)`` gives bytes of a storage, or raises
    ``Malformed``.

    ``damage`` and ``limits`` grow while it is read. ``unread`` says what is wrong with storages
    that no tensor was looked at for (integers); it is asked where nothing else is wrong. ``made``
    are all tensors of several parts, ``beyond`` is as in ``Scan``.
    """

    format: Format
    tree: Any
    read: Callable[[Storage, int, int], bytes]
    foreign: tuple[str, ...] = ()
    damage: list[str] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    big_endian: bool = False
    unread: Callable[[], list[str]] = list
    made: tuple[Composite, ...] = ()
    beyond: str = ""
