"""States loaded before the first step: what was not finite in them, and rates they brought."""

import math
from collections.abc import Iterable

from auditor.evidence.source.files import Source, name_of
from auditor.model import Site
from auditor.recordings.schema.data import LoadRow, OptimizerLoadRow, RateGroup


def overridden(
    group: RateGroup, tolerance: float, default: float | None
) -> tuple[float, float] | None:
    """The rate that was set and the other one that replaced it; None if they agree, or if that is
    unknown.

    Compared is what a schedule starts from or goes up to: a rate that a scheduler brought down is
    no other one. Where no scheduler left its mark, a lower rate may have been set by hand.
    ``default`` is the rate of an optimizer created without one.
    """
    if not _same(group.after.get("lr"), group.first.get("lr"), tolerance):
        return None  # set again after loading
    key = next((each for each in ("max_lr", "initial_lr") if each in group.after), "lr")
    was = group.before.get(key, group.before.get("lr") if key == "initial_lr" else None)
    now = group.after.get(key)
    if (
        not was
        or now is None
        or was == default
        or _same(was, now, tolerance)
        or not _same(now, group.first.get(key), tolerance)
    ):
        return None
    return None if key == "lr" and now < was else (was, now)


def spoiled(loads: Iterable[LoadRow], *, optimizer: bool) -> LoadRow | None:
    """The last of a module, or of an optimizer, that brought in what is not finite."""
    found = [each for each in loads if isinstance(each, OptimizerLoadRow) is optimizer and each.bad]
    return found[-1] if found else None


def default_rate(load: OptimizerLoadRow, source: Source) -> float | None:
    """The default rate of this optimizer class; None if the making line gives one."""
    made = load.site_of(load.made_at)
    return None if made is not None and _gives_rate(source, made, load.owner) else load.default


def _gives_rate(source: Source, site: Site, owner: str) -> bool:
    """The line makes such an optimizer and gives its rate, by name or as second argument."""
    calls = source.calls_at(site)
    here = [call for call in calls if name_of(call.func) == owner]
    return bool(here) and all(
        len(call.args) > 1 or any(given.arg == "lr" for given in call.keywords) for call in here
    )


def _same(one: float | None, other: float | None, tolerance: float) -> bool:
    return one is not None and other is not None and math.isclose(one, other, rel_tol=tolerance)
