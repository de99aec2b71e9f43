"""By which lines of the user's a module was called, and which of them nobody needed a graph for."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from auditor.capture.instruments.user_frames import Frames

Path = tuple[int, ...]
"""Numbers of the user's lines around a call, the outermost first."""


def path_of(frames: Frames) -> Path:
    """The lines around the caller."""
    found = frames.user_frames(sys._getframe(1))
    return tuple([frames.number(each) for each in reversed(found)])


def needless(
    paths: Sequence[Path], wanted: Sequence[Path]
) -> Iterator[tuple[int, int, list[Path]]]:
    """The line that stands for each group of ``paths``, the outermost one that could, and the group.

    A group is what has in common the first line from which on no path is a ``wanted`` one. Of the
    lines that all of a group run through, the innermost one stands for it that is on no wanted
    path: a change there changes no other call.
    """
    used = {line for path in wanted for line in path}
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        groups.setdefault(_apart(path, wanted), []).append(path)
    for prefix, together in groups.items():
        shared = _shared(together)
        own = [line for line in shared[len(prefix) - 1 :] if line not in used]
        own = own or [prefix[-1]]
        yield own[-1], own[0], together


def _apart(path: Path, wanted: Sequence[Path]) -> Path:
    """Its shortest beginning that no wanted path has."""
    for length in range(1, len(path)):
        if not any(other[:length] == path[:length] for other in wanted):
            return path[:length]
    return path


def _shared(paths: Sequence[Path]) -> Path:
    """The beginning that all have."""
    length = 0
    for lines in zip(*paths, strict=False):
        if len(set(lines)) > 1:
            break
        length += 1
    return paths[0][:length]
