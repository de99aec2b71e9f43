"""What the ranks of a job hold and exchange in a step, as rows that every renderer shows alike."""

from auditor import amounts
from auditor.model import Report
from auditor.model.sections import Communication, Exchange, RankShare

SHARES = (
    "rank",
    "parameters",
    "gradients",
    "optimizer",
    "other at the peak",
    "peak memory",
    "collectives",
    "gives",
    "gets",
)
EXCHANGES = ("where", "collective", "ranks", "dtype", "per step", "gives", "gets", "waited for")
UNKNOWN = "-"


def sentences(report: Report) -> tuple[str, ...]:
    """Which ranks were watched, and which collectives nothing hides."""
    found = report.communication
    return () if found is None else tuple(filter(None, (_watched(found), _bare(found))))


def named(ranks: tuple[int, ...]) -> str:
    """``rank 0``, ``ranks 0, 1 and 63``."""
    *some, last = map(str, ranks)
    return f"ranks {', '.join(some)} and {last}" if some else f"rank {last}"


def shares(report: Report, limit: int) -> list[tuple[str, ...]]:
    """One row a rank, under :data:`SHARES`."""
    found = report.communication
    return [] if found is None else [_share(each) for each in found.ranks[:limit]]


def exchanges(report: Report, limit: int) -> list[tuple[str, ...]]:
    """A row per line and kind of collective (:data:`EXCHANGES`); the ``limit`` with most bytes."""
    found = report.communication
    return [] if found is None else [_exchange(found, each) for each in found.exchanges[:limit]]


def left_out(report: Report, limit: int) -> str:
    """What is said under a table of exchanges that does not hold all; empty if it does."""
    found = report.communication
    more = len(found.exchanges) - limit if found is not None else 0
    return f"and {amounts.count(more, 'row')} with fewer bytes (report.json has all)" * (more > 0)


def _watched(found: Communication) -> str:
    who = named(tuple(each.rank for each in found.ranks))
    if not found.played:
        return (
            f"Collectives of {who}, in {amounts.count(found.steps, 'step')} of the precision pass."
        )
    return (
        f"Rehearsed as {who} of {found.world_size}: the other ranks did not run and are assumed to "
        "send what this one did. Bytes and order are those of a step; times are not known."
    )


def _bare(found: Communication) -> str:
    bare = [each for each in found.exchanges if each.between == 0]
    if not bare:
        return ""
    first = found.ranks[0].rank
    n = sum(each.per_step for each in bare if first in each.of_ranks)
    lines = list(dict.fromkeys(str(each.site) for each in bare))
    more = f" and {amounts.count(len(lines) - 3, 'more line')}" if len(lines) > 3 else ""
    return (
        f"Nothing is computed between issue and wait of {amounts.count(round(n), 'collective')} per "
        f"step: {', '.join(lines[:3])}{more}."
    )


def _share(each: RankShare) -> tuple[str, ...]:
    held = (
        each.parameter_bytes,
        each.gradient_bytes,
        each.optimizer_bytes,
        each.other_bytes,
        each.peak_bytes,
    )
    return (
        str(each.rank),
        *(UNKNOWN if one is None else amounts.size(one) for one in held),
        f"{each.collectives:g}",
        amounts.size(each.bytes_in),
        amounts.size(each.bytes_out),
    )


def _exchange(found: Communication, each: Exchange) -> tuple[str, ...]:
    group = f"{each.ranks}" + (f" ({each.group})" if each.group else "")
    if len(each.of_ranks) < len(found.ranks):
        group += f", on {named(each.of_ranks)}"
    return (
        str(each.site),
        each.what,
        group,
        each.dtype,
        f"{each.per_step:g}",
        amounts.size(each.bytes_in),
        amounts.size(each.bytes_out),
        _wait(each),
    )


def _wait(each: Exchange) -> str:
    if each.between is None or each.waited is None:
        return "by torch"
    where = "" if each.waited == each.site else f" at {each.waited}"
    return f"at once{where}" if not each.between else f"after {each.between} operators{where}"
