"""The rules about out-of-memory handlers and peaks at the edges of their thresholds, on tables made
by hand.
"""

from contextlib import nullcontext

import pytest
from auditor.rules.mem.mem011_oom_handling import WHY, Flaw, OomHandlers, OutOfMemoryHandledWrongly
from auditor.rules.mem.peaks import REMEDIES, PeakMemoryCutByOneChange
from auditor.rules.mem.rows import LeanerRow

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.table import Rows
from auditor.model import Site
from auditor.recordings.schema.graph import ZeroGradRow
from auditor.rule import NotLooked
from tests.rules.asking import ask, rows

REHEARSAL = Machine("rehearsal", 8)
LINE, OTHER, STEP = (Site("trainer.py", line, "step") for line in (3, 4, 9))
MIB = 2**20


# -- MEM011 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "seen_on"), [(0, "source"), (1, None)])
@pytest.mark.parametrize(("reason", "advice"), [("kept", "str(error)"), ("inside", "flag")])
def test_a_handlers_flaw_is_seen_on_the_device_where_memory_ran_out(
    errors, seen_on, reason, advice
):
    rule = OutOfMemoryHandledWrongly()
    (found,) = ask(rule, OomHandlers((Flaw(LINE, OTHER, reason),), errors))
    assert found.site == LINE and WHY[reason] in found.message
    assert ("handler", str(OTHER)) in found.facts and advice in rule.remedy(found).text
    assert found.seen_on == seen_on
    assert ("memory ran out 1 time in" in found.message) is bool(errors)


# -- MEM014 ----------------------------------------------------------------------------------------


def peaks(*given, at=0):
    """One row for each (peak in MiB, what was changed, tensors)."""
    made = (
        LeanerRow(at=at, what=what, changed=n, peak_allocated=round(mib * MIB))
        for mib, what, n in given
    )
    return rows(*made, sites=(STEP,))


def changed(peak_mib, saved_mib, what="gradients", cleared=()):
    given = peaks((peak_mib, "", 0), (peak_mib, "", 0), (peak_mib - saved_mib, what, 4))
    calls = [ZeroGradRow(at=at, step=step, n=1) for at in range(len(cleared)) for step in (0, 1)]
    zeros = rows(*calls, sites=cleared) if calls else Rows[ZeroGradRow]()
    return list(ask(PeakMemoryCutByOneChange(), given, zeros, REHEARSAL))


@pytest.mark.parametrize(
    ("peak", "saved", "expected"),
    [
        (1000, 50, 1),
        (1000, 49.99, 0),
        (100, 16, 1),
        (100, 15.99, 0),
        (100, 100, 1),
        (320, 16, 1),
        (100, -20, 0),
    ],
)
def test_a_change_must_save_five_percent_of_the_peak_and_16_mib(peak, saved, expected):
    found = changed(peak, saved)
    assert len(found) == expected
    assert [each.lost_bytes for each in found] == [saved * MIB] * expected


@pytest.mark.parametrize(
    ("what", "cleared", "site"),
    [
        ("gradients", (), STEP),
        ("gradients", (LINE,), LINE),
        ("gradients", (LINE, OTHER), STEP),  # which of them to move cannot be told
        ("foreach", (LINE,), STEP),
    ],
)
def test_the_line_to_edit_clears_gradients_alone_else_it_is_the_optimizers_step(
    what, cleared, site
):
    (found,) = changed(1000, 100, what, cleared)
    assert found.site == site
    assert PeakMemoryCutByOneChange().remedy(found).text == REMEDIES[what]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ([(1000, "", 0), (700, "gradients", 3)], "too few steps"),
        ([(700, "gradients", 3)], "too few steps"),
        ([(1000, "", 0), (989, "", 0)], "differs from step to step"),
        ([(1000, "", 0), (990, "", 0)], ""),
    ],
    ids=["one unchanged", "none", "unchanged ones differ", "one per cent is the same"],
)
def test_what_cannot_be_compared_is_not_looked_at(given, why):
    with pytest.raises(NotLooked, match=why) if why else nullcontext():
        assert list(ask(PeakMemoryCutByOneChange(), peaks(*given), REHEARSAL)) == []
