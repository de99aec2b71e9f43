"""Inside a worker process of a DataLoader: which lines its batches take their time in, as long as
the recording process asks for it.

A worker that is spawned imports this module: it needs torch and nothing else of the recorder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from auditor.capture.instruments.stack_sampler import Stack, StackSampler
from auditor.capture.instruments.torch_private.data import FETCHERS, worker_loop

ASKED = "asked"
"""The file in the folder that is there while stacks are asked for."""

Frame = tuple[str, int, str]
"""File, line and function."""


@dataclass
class WatchedLoop:
    """Stands in the place of torch's worker loop. What workers see goes to files of ``folder``,
    under the number of the loader that is starting them.
    """

    folder: str
    loader: int = 0

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        """In the worker process."""
        with contextlib.suppress(Exception):
            _watch_fetches(Path(self.folder), self.loader)
        worker_loop(*args, **kwargs)


def _watch_fetches(folder: Path, loader: int) -> None:
    """Nothing is undone: the process ends with its loop."""
    asked, sampler = str(folder / ASKED), StackSampler()
    for fetcher_class in FETCHERS:
        fetcher_class.fetch = _watched(fetcher_class.fetch, asked, sampler, folder, loader)


def _watched(
    original: Callable[..., Any], asked: str, sampler: StackSampler, folder: Path, loader: int
) -> Callable[..., Any]:
    inside = False

    @functools.wraps(original)
    def watched_fetch(fetcher: Any, index: Any) -> Any:
        nonlocal inside
        if inside or not os.path.exists(asked):  # a dataset's own loader is part of the outer one
            return original(fetcher, index)
        inside = True
        sampler.begin(loader)
        try:
            return original(fetcher, index)
        finally:
            sampler.end()
            inside = False
            _tell(sampler, folder, loader)

    return watched_fetch


def _tell(sampler: StackSampler, folder: Path, loader: int) -> None:
    lines = [
        json.dumps({"us": us, "looks": looks, "stack": frames_of(stack)}) + "\n"
        for (_, stack), (us, looks) in sampler.taken().items()
    ]
    if lines:
        with (
            contextlib.suppress(OSError),
            open(folder / f"{loader}-{os.getpid()}.jsonl", "a", encoding="utf-8") as file,
        ):
            file.write("".join(lines))


def frames_of(stack: Stack) -> list[Frame]:
    """A stack as it can be written down."""
    return [
        (code.co_filename, line, getattr(code, "co_qualname", code.co_name)) for code, line in stack
    ]


def told(folder: Path) -> Iterator[tuple[int, float, int, list[Frame]]]:
    """What workers have written, and remove it: loader, us, looks, and the stack."""
    for path in sorted(folder.glob("*.jsonl")):
        with contextlib.suppress(OSError, ValueError):
            content = path.read_text(encoding="utf-8")
            path.unlink()
            loader = int(path.name.partition("-")[0])
            for line in content.split("\n"):
                with contextlib.suppress(ValueError, KeyError):  # cut off by the worker's end
                    row = json.loads(line)
                    stack = [(str(file), int(at), str(name)) for file, at, name in row["stack"]]
                    yield loader, float(row["us"]), int(row["looks"]), stack
