"""States that were loaded before the first step: what in them was not finite, and rates that they
brought back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import Source, name_of
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.data import LoadRow, OptimizerLoadRow


@dataclass(frozen=True)
class Group:
    """Rates of one parameter group by name (``lr``, ``initial_lr``, ``max_lr``): as the program had
    set them, as they were loaded, and as the optimizer found them when it stepped first.
    """

    before: dict[str, float]
    after: dict[str, float]
    first: dict[str, float]

    def overridden(self, tolerance: float, default: float | None) -> tuple[float, float] | None:
        """The rate that was set and the other one that replaced it; None if they agree, or nobody
        can tell.

        Compared is what a schedule starts from or goes up to: a rate that a scheduler brought down
        is no other one. Where no scheduler left its mark, a lower rate may have been set by hand.
        ``default`` is a rate that nobody has set.
        """
        if not _same(self.after.get("lr"), self.first.get("lr"), tolerance):
            return None  # set again after loading
        key = next((each for each in ("max_lr", "initial_lr") if each in self.after), "lr")
        was = self.before.get(key, self.before.get("lr") if key == "initial_lr" else None)
        now = self.after.get(key)
        if (
            not was
            or now is None
            or was == default
            or _same(was, now, tolerance)
            or not _same(now, self.first.get(key), tolerance)
        ):
            return None
        return None if key == "lr" and now < was else (was, now)


@dataclass(frozen=True)
class Load:
    """One call of ``load_state_dict`` of a ``module`` or an ``optimizer``: ``what``; ``owner`` is
    its class.

    ``bad`` tensors of it are not finite, of which ``tensors`` are the first. ``default`` is the
    rate of an optimizer of this class that is given none; None where the line that made it gives
    one.
    """

    site: Site
    what: str
    owner: str
    bad: int = 0
    tensors: tuple[str, ...] = ()
    groups: tuple[Group, ...] = ()
    default: float | None = None


@dataclass(frozen=True)
class Loads(Table):
    """All of them in order."""

    parts: ClassVar[tuple[str, ...]] = ("loads",)

    each: tuple[Load, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Loads:
        """From the whole run."""
        return cls(tuple(_load(evidence, row) for row in rows_of(evidence, LoadRow)))

    def spoiled(self, what: str) -> Load | None:
        """The last one that brought in what is not finite."""
        return next((load for load in reversed(self.each) if load.what == what and load.bad), None)


def _load(evidence: Evidence, row: LoadRow) -> Load:
    site, tensors = evidence.recording.site(row.at), tuple(row.tensors)
    if not isinstance(row, OptimizerLoadRow):
        return Load(site, "module", row.owner, row.bad, tensors)
    groups = tuple(Group(each.before, each.after, each.first) for each in row.groups)
    made = row.made_at
    given = made is not None and _gives_rate(evidence, evidence.recording.site(made), row.owner)
    default = None if given else row.default
    return Load(site, "optimizer", row.owner, row.bad, tensors, groups, default)


def _gives_rate(evidence: Evidence, site: Site, owner: str) -> bool:
    """The line makes an optimizer of this class and names its rate, by name or as the second
    argument.
    """
    calls = evidence.get(Source).calls_at(site)
    here = [call for call in calls if name_of(call.func) == owner]
    return bool(here) and all(
        len(call.args) > 1 or any(given.arg == "lr" for given in call.keywords) for call in here
    )


def _same(one: float | None, other: float | None, tolerance: float) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance)
