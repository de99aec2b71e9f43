"""A trace without a recording around it: what ``audit analyze trace.json.gz`` judges."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.recordings.standalone import StandaloneRecording

if TYPE_CHECKING:
    from auditor.timeline import Fleet


class TraceRecording(StandaloneRecording):
    """A trace that stands alone, from wherever: judged by what a trace shows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path.parent, path.name, "trace")
        self._path = path

    @property
    def trace(self) -> Path | None:
        """The file itself."""
        return self._path


WAITED_FOR = "which waits least in collectives: the others wait for it"
SLOWEST = "which has the longest steps"


class RankedTraces(TraceRecording):
    """The traces of a job's ranks: judged on the rank that the others wait for, with the facts of
    all beside it.

    The rank that waits least in collectives is the one that comes last to them; where there are
    none, it is the slowest.
    """

    def __init__(self, folder: Path, ranks: Fleet) -> None:
        judged = ranks.least_waiting or ranks.slowest
        super().__init__(Path(judged.path))
        self.ranks = ranks
        self.manifest |= {
            "target": f"{folder.name or folder.resolve().name}/",
            "world_size": ranks.world_size,
            "judged": f"rules were asked of rank {judged.rank}, "
            f"{WAITED_FOR if ranks.least_waiting else SLOWEST}",
            "warnings": list(_said(ranks)),
        }
        self.home = folder


def _said(ranks: Fleet) -> Iterator[str]:
    yield from ranks.warnings
    for unread in ranks.unread:
        yield f"{Path(unread.path).name} is left out: {unread.reason}"
    if ranks.missing:
        shown = ", ".join(str(rank) for rank in ranks.missing[:8]) + (
            "..." if len(ranks.missing) > 8 else ""
        )
        some = f"rank {shown} is" if len(ranks.missing) == 1 else f"ranks {shown} are"
        yield (
            f"{some} missing: {len(ranks.ranks)} of {ranks.world_size} traces are there, and who "
            "is late may be among the others"
        )
    if len(ranks.ranks) > 1 and ranks.alignment is None:
        yield (
            "the ranks share no collective: their clocks cannot be set by one another, and nobody "
            "can be called late"
        )
