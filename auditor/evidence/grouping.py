"""Rows and calls that belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, Protocol, TypeVar

from auditor.model import Site


class AtLine(Protocol):
    """What stands at a line."""

    @property
    def site(self) -> Site:
        """That line."""


V = TypeVar("V")
L = TypeVar("L", bound=AtLine)


def together(each: Iterable[V], key: Callable[[V], Any]) -> Iterator[list[V]]:
    """Those of one key, by key; as they came within it."""
    for _, same in groupby(sorted(each, key=key), key=key):
        yield list(same)


def by_line(each: Iterable[L]) -> Iterator[list[L]]:
    """Those of one line, by file and line."""
    return together(each, lambda one: (one.site.file, one.site.line))
