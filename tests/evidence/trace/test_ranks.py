"""Ranks side by side: what the late one does longer, and the extremes of each column."""

from auditor.evidence.trace.ranks import Ranks
from auditor.model import Rank


def rank(number, step=100.0, compute=50.0, loader=0.0, wait=0.0, steps=5):
    facts = {"rank": number, "file": "", "host": "", "device": "", "communication_us": 0.0}
    facts |= {"peak_bytes": None, "steps": steps, "step_us": step, "busy_us": 40.0}
    facts |= {"compute_us": compute, "exposed_us": number, "loader_us": loader, "wait_us": wait}
    return Rank(**facts)


def test_medians_and_minima():
    table = Ranks((rank(0, 90.0), rank(1, 100.0, steps=3), rank(2, 120.0)), waited_us=25.0)
    assert (table.step_us, table.waited_share, table.steps) == (100.0, 0.25, 3)
    assert (Ranks().step_us, Ranks(waited_us=5.0).waited_share, Ranks().steps) == (0.0, 0.0, 0)
