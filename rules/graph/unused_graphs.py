"""Graphs that a backward walks for gradients that nobody looks at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .rows import EvalRow, StrayRow


def for_nobody(
    graphs: Iterable[EvalRow], leaves: Iterable[StrayRow], calls: int
) -> Iterator[EvalRow]:
    """Lines with this many calls whose graphs a backward walks to give gradients to parameters alone
    that no optimizer holds and whose gradients nobody looks at: a teacher, or an average of weights
    that the program changes itself.
    """
    known = {leaf.name: leaf for leaf in leaves if leaf.registered and not leaf.known}
    for each in graphs:
        if each.n < calls or not each.walked or each.fed or each.mode == "trained":
            continue
        own = [known[name] for name in each.parameters if name in known]
        if own and (each.mode == "eval" or any(leaf.changed for leaf in own)):
            yield each
