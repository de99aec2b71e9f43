"""What ranks hold and exchange: in words, on page and terminal, from a stranger; without times."""

from dataclasses import replace

from auditor.model import Site
from auditor.model.sections import Communication, Exchange, RankShare
from tests.reports import golden_report as golden

SITE, LATER = Site("train.py", 7, "", "loss.backward()"), Site("train.py", 9, "", "work.wait()")
MIB = 2**20
REDUCE = Exchange(
    SITE, "all_reduce", "mesh_dp", 8, "bfloat16", 2.0, 4.0 * MIB, 4.0 * MIB, None, None, (0, 63)
)
WAITED = Exchange(SITE, "all_gather", "", 64, "float32", 1.0, 4.0, 256.0, LATER, 5, (0,))
BARE = Exchange(LATER, "barrier", "", 64, "", 1.0, 0.0, 0.0, LATER, 0, (0, 63))
RANKS = (
    RankShare(0, 10 * MIB, 2 * MIB, 2 * MIB, 4 * MIB, 4.0, 4.0 * MIB, 4.0 * MIB),
    RankShare(63, None, None, None, None, 3.0, 4.0 * MIB, 4.0 * MIB),
)
FOUND = Communication(64, True, 3, RANKS, (REDUCE, WAITED, BARE))


def report(**more):
    silent = golden.silent_report()
    run = replace(silent.run, world_size=64)
    return replace(silent, run=run, communication=replace(FOUND, **more))
