"""Calls that make a tensor of a list of NumPy arrays, number by number.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

MAKERS = ("tensor", "as_tensor")

NESTED = 3
"""Lists inside lists that are looked into."""


@dataclass
class Listed:
    """What the calls of one place were given: arrays, and numbers in them."""

    n: int = 0
    us: float = 0.0
    arrays: int = 0
    numbers: int = 0


class ArrayLists:
    """Counts and times such calls by place; ``here`` names the caller's (None: not counted)."""

    def __init__(self, here: Callable[[], Hashable | None]) -> None:
        self._here = here
        self._seen: defaultdict[Hashable, Listed] = defaultdict(Listed)

    def watch(self, replace: Callable[[Any, str, Any], None]) -> None:
        """Put functions of ours in place of torch's, by ``replace(torch, name, function)``.

        Torch collects its own once, when a default device is first asked for: before that.
        """
        with torch.device("cpu"):
            torch.empty(0)
        for name in MAKERS:
            replace(torch, name, self._timed(getattr(torch, name)))

    def taken(self) -> dict[Hashable, Listed]:
        """What was seen since the last call."""
        seen, self._seen = self._seen, defaultdict(Listed)
        return dict(seen)

    def _timed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(*args: Any, **kwargs: Any) -> Any:
            arrays = arrays_in(args[0] if args else kwargs.get("data"))
            place = self._here() if arrays else None
            if place is None:
                return original(*args, **kwargs)
            start = time.thread_time_ns()
            made = original(*args, **kwargs)
            seen = self._seen[place]
            seen.n += 1
            seen.us += (time.thread_time_ns() - start) / 1e3
            seen.arrays += arrays
            seen.numbers += made.numel()
            return made

        return make


def arrays_in(data: Any) -> int:
    """How many arrays of at least one dimension the list holds; 0 of anything else."""
    lists = 1
    for _ in range(NESTED):
        if not isinstance(data, (list, tuple)) or not data:
            return 0
        lists *= len(data)
        data = data[0]
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(data, numpy.ndarray):
            return lists if data.ndim else 0
    return 0
