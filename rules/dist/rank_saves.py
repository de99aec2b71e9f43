"""DIST015: all ranks save the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.data_parallel import MEMBERS, ONE_PROCESS, Place
from auditor.evidence.table import Evidence, Table
from auditor.model import Finding, Severity, Site
from auditor.recordings.folder import Recording
from auditor.rule import NotLooked, Rule, knob

from .rows import RankSaveRow


@dataclass(frozen=True)
class SavedAlike:
    """A line on which all ranks saved the same tensors, ``saves`` times; ``nbytes`` is the size of
    the largest file, ``us`` what a save of a rank other than the first took. ``one_file``: they
    wrote to one path.
    """

    site: Site
    ranks: int
    saves: int
    nbytes: int
    us: float
    one_file: bool = False


@dataclass(frozen=True)
class RankSaves(Table):
    """Those of all passes, by line."""

    parts: ClassVar[tuple[str, ...]] = ("rank_saves",)

    each: tuple[SavedAlike, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> RankSaves:
        """The first save of a line beside the first of the other ranks, and so on."""
        members: tuple[Recording, ...] = getattr(evidence.recording, MEMBERS, ())
        if len(members) < 2:
            raise NotLooked(ONE_PROCESS)
        ranks = [_saves(each) for each in sorted(members, key=lambda each: each.rank)]
        if len(ranks) < int(members[0].manifest.get("world_size") or 0):
            raise NotLooked("not all ranks were recorded")
        found = (_alike(place, ranks) for place in ranks[0])
        return cls(tuple(each for each in found if each is not None))


Saved = dict[Place, tuple[Site, list[RankSaveRow]]]


def _saves(recording: Recording) -> Saved:
    found: Saved = {}
    for row in recording.typed_rows(RankSaveRow.part):
        if isinstance(row, RankSaveRow):
            site = recording.site(row.at)
            found.setdefault(site.place, (site, []))[1].append(row)
    return found


def _alike(place: Place, ranks: list[Saved]) -> SavedAlike | None:
    if any(place not in each for each in ranks):
        return None
    site, _ = ranks[0][place]
    together = [
        rows
        for rows in zip(*(each[place][1] for each in ranks), strict=False)
        if rows[0].digest and len({row.digest for row in rows}) == 1
    ]
    if not together:
        return None
    return SavedAlike(
        site,
        len(ranks),
        len(together),
        max(rows[0].bytes or 0 for rows in together),
        mean(row.us for rows in together for row in rows[1:]),
        any(rows[0].path and len({row.path for row in rows}) == 1 for rows in together),
    )


@dataclass(frozen=True)
class SavedByAll(Rule):
    """Every rank saves the same state"""

    code = "DIST015"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Save on rank 0 alone (`if dist.get_rank() == 0:`; what gathers the state stays on all "
        "ranks). Of a sharded model, let torch.distributed.checkpoint save each rank's part, "
        "or gather with StateDictOptions(full_state_dict=True, cpu_offload=True)."
    )

    least: int = knob(1 << 18, "Bytes of the file from which it is reported.")

    def detect(self, saves: RankSaves) -> Iterator[Finding]:
        for each in saves.each:
            if each.nbytes < self.least:
                continue
            extra = amounts.size(each.nbytes * (each.ranks - 1))
            where = "into one file" if each.one_file else "into a file of its own"
            yield Finding(
                each.site,
                f"each of {each.ranks} ranks saves the same tensors, "
                f"{amounts.size(each.nbytes)}, {where}",
                steps=each.saves,
                facts=(
                    ("saves that were alike", str(each.saves)),
                    ("written for nothing", f"{extra} each time"),
                    ("a save of another rank took", amounts.duration(each.us)),
                ),
            )
