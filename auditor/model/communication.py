"""What the ranks of a job hold and exchange in a step, as a report holds it. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from auditor.model.sites import Site


@dataclass(frozen=True)
class RankShare:
    """One rank: bytes of its device memory by purpose, None where not known, and what it gives and
    gets in a step.
    """

    rank: int
    peak_bytes: int | None
    parameter_bytes: int | None
    gradient_bytes: int | None
    optimizer_bytes: int | None
    collectives: float
    bytes_in: float
    bytes_out: float

    @property
    def other_bytes(self) -> int | None:
        """At the peak: activations, buckets, workspaces; None where a part is not known."""
        known = (self.parameter_bytes, self.gradient_bytes, self.optimizer_bytes)
        if self.peak_bytes is None or None in known:
            return None
        return max(0, self.peak_bytes - sum(each for each in known if each is not None))


@dataclass(frozen=True)
class Exchange:
    """Collectives of one kind that one line issues in a group, on each of ``of_ranks`` alike:
    ``per_step`` of them, for which a rank gives ``bytes_in`` and gets ``bytes_out``.

    The program waits for them at ``waited``, ``between`` operators later; None where torch waits, or
    nobody was seen to.
    """

    site: Site
    what: str
    group: str
    ranks: int
    dtype: str
    per_step: float
    bytes_in: float
    bytes_out: float
    waited: Site | None
    between: int | None
    of_ranks: tuple[int, ...]


@dataclass(frozen=True)
class Communication:
    """Of the ranks that were recorded, of ``world_size``, in the ``steps`` that were watched.
    ``played``: nobody ran the other ranks.
    """

    world_size: int
    played: bool
    steps: int
    ranks: tuple[RankShare, ...]
    exchanges: tuple[Exchange, ...]
    """Those with the most bytes first."""
