"""Steps that differ and come again: phases once in many steps (a rollout, an evaluation), seen in
their times, and steps of several kinds in turn. Standard library only.
"""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

HEAVY = 3.0
"""Times the median step that make a phase: a rollout takes ten, a log less than one."""

SIGHTINGS = 2
"""Cycles that a pass with instruments should hold: two sightings show how far they are apart."""

MOST_S = 60.0
"""How long such a pass may take for them."""


def cycle_of(us: Sequence[float]) -> int | None:
    """After how many steps a phase comes again that takes much of the time, from the times of steps
    that follow one another; None if there is none, or it does not keep its distance.

    Only the heaviest steps count, those at least a third as long as the longest: what others do on
    the machine is mostly shorter than a phase, and its clock rate may change. Two of them may be
    chance: they must be twice as long as any other.
    """
    usual, longest = (median(us), max(us)) if us else (0.0, 0.0)
    heavy = [step for step, took in enumerate(us) if took >= max(HEAVY * usual, longest / 3)]
    apart = {after - before for before, after in pairwise(heavy)}
    if usual <= 0.0 or len(apart) != 1:
        return None
    others = sorted(us)[-len(heavy) - 1 :][:1]
    if len(heavy) == 2 and others[0] > min(us[step] for step in heavy) / 2:
        return None
    cycle = apart.pop()
    through = heavy[0] < cycle and heavy[-1] + cycle >= len(us)
    return cycle if through and cycle > 1 else None


def whole_cycles(us: Sequence[float], steps: int, most: int, slower: float = 1.0) -> int:
    """How many steps a pass needs, of ``steps`` that are planned, to hold whole cycles; as planned
    where there are none, or where they do not fit into ``most`` steps or too much time.

    ``us`` are times of plain steps, and a step of the pass takes ``slower`` times as long.
    """
    wanted = SIGHTINGS * (cycle_of(us) or 0)
    takes = slower * wanted * sum(us) / (1e6 * max(1, len(us)))
    return wanted if steps < wanted <= most and takes <= MOST_S else steps


def prolonged(steps: int) -> str:
    """The sentence on passes of ``steps`` steps, which hold whole cycles."""
    return (
        f"every {steps // SIGHTINGS}th step takes {HEAVY:.0f} times a usual one or more (a rollout, "
        f"an evaluation): the diagnostic pass takes {steps} steps, so that it holds whole cycles"
    )


def period_of(kinds: Sequence[object], most: int) -> int | None:
    """After how many steps, of ``most``, kinds of steps come again; None if not seen twice."""
    return next(
        (
            period
            for period in range(1, min(most, len(kinds) // 2) + 1)
            if all(before == after for before, after in zip(kinds, kinds[period:], strict=False))
        ),
        None,
    )
