"""The rules about out-of-memory handlers and peaks at the edges of their thresholds, on tables made
by hand.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.mem.mem011_oom_handling import WHY, OutOfMemoryHandledWrongly
from auditor.rules.mem.mem014_one_change import REMEDIES, PeakMemoryCutByOneChange
from auditor.rules.mem.mem015_out_of_memory import RanOutOfMemory
from auditor.rules.mem.oom_handlers import Flaw, OomHandlers
from auditor.rules.mem.peak_experiments import Change, PeakExperiments

from auditor.evidence import DeviceCalls, Machine, OutOfMemory, ZeroGrads
from auditor.evidence.recorded.device_calls import DeviceCall
from auditor.evidence.recorded.zero_grad import ZeroGrad
from auditor.model import Severity, Site
from tests.rules.asking import ask

CPU, CUDA, REHEARSAL = Machine("cpu", 8), Machine("cuda", 8), Machine("rehearsal", 8)
LINE, OTHER, STEP = (Site("trainer.py", line, "step") for line in (3, 4, 9))
MIB = 2**20


# -- MEM011 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lines", "places"), [((), []), ((5,), [3, 5]), ((7, 5), [3, 5, 7])])
def test_a_flaw_is_told_with_the_lines_that_belong_to_it(lines, places):
    others = tuple(Site("trainer.py", line) for line in lines)
    flaw = Flaw(LINE, LINE, ("swallows", "died"), others)
    (found,) = ask(OutOfMemoryHandledWrongly(), OomHandlers((flaw,), 1, 1), CUDA)
    assert found.site == LINE and [each.site.line for each in found.places] == places
    assert found.message.endswith(f"{WHY['died']}; memory ran out 1 time in this audit")
    (remedy,) = [OutOfMemoryHandledWrongly().remedy(found)]
    assert remedy.text.startswith("Catch torch.OutOfMemoryError alone. In except only")


def emptied(on, of, machine=CUDA):
    calls = DeviceCalls(
        machine.device, of, tuple(DeviceCall(LINE, "empty_cache", step, us=300.0) for step in on)
    )
    return list(ask(OutOfMemoryHandledWrongly(), OomHandlers(calls=calls), machine))


@pytest.mark.parametrize(
    ("on", "of", "expected"),
    [
        ([0, 5], 20, 0),  # two calls have one distance, which says nothing
        ([0, 5, 10], 20, 1),
        ([0, 5, 11], 20, 0),  # at no constant distance
        (range(0, 20, 2), 21, 1),  # below half of the steps
        (range(0, 20, 2), 20, 0),  # exactly half: SYNC009's
        (range(2), 2, 0),
    ],
)
def test_calls_of_empty_cache_are_periodic_from_three_on_and_below_half_of_the_steps(
    on, of, expected
):
    assert len(emptied(on, of)) == expected


def test_empty_cache_at_intervals_is_a_note_priced_where_a_device_was_timed():
    (timed,), (played,) = emptied([0, 5, 10], 20), emptied([0, 5, 10], 20, REHEARSAL)
    assert (timed.severity, played.severity) == (Severity.NOTE, Severity.NOTE)
    assert (timed.lost_us_per_step, timed.basis, timed.steps, timed.per_step) == (
        45.0,
        "measured",
        3,
        3 / 20,
    )
    assert (played.lost_us_per_step, played.basis) == (None, "none")
    assert "every 5 steps" in timed.message and "rehearsed, so not priced" in played.message
    assert emptied([0, 5, 10], 20, CPU) == []


@pytest.mark.parametrize(
    ("reasons", "advice"),
    [(("kept",), "str(error)"), (("periodic",), "Drop it"), (("inside",), "flag")],
)
def test_each_flaw_of_a_handler_has_its_own_advice(reasons, advice):
    rule = OutOfMemoryHandledWrongly()
    if reasons == ("periodic",):
        (found,) = emptied([0, 5, 10], 20)
    else:
        (found,) = ask(rule, OomHandlers((Flaw(LINE, OTHER, reasons),), 1), CUDA)
        assert (
            found.site == LINE
            and WHY[reasons[0]] in found.message
            and ("handler", str(OTHER)) in found.facts
        )
    assert advice in rule.remedy(found).text


@pytest.mark.parametrize(("errors", "seen_on"), [(0, "source"), (1, "cuda")])
def test_a_handler_is_seen_on_the_device_only_where_memory_ran_out(errors, seen_on):
    (found,) = ask(
        OutOfMemoryHandledWrongly(), OomHandlers((Flaw(LINE, OTHER, ("kept",)),), 1, errors), CUDA
    )
    assert found.seen_on == seen_on
    assert ("memory ran out 1 time in" in found.message) is bool(errors)


# -- MEM014 ----------------------------------------------------------------------------------------


def changed(peak_mib, saved_mib, what="gradients", cleared=()):
    change = Change(what, round((peak_mib - saved_mib) * MIB), 4, STEP)
    zeros = ZeroGrads(20, tuple(ZeroGrad(site, step) for site in cleared for step in (0, 1)))
    return list(
        ask(
            PeakMemoryCutByOneChange(),
            PeakExperiments(round(peak_mib * MIB), (change,)),
            zeros,
            REHEARSAL,
        )
    )


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
def test_the_line_to_edit_is_the_only_one_that_clears_gradients_else_the_optimizers_step(
    what, cleared, site
):
    (found,) = changed(1000, 100, what, cleared)
    assert found.site == site
    assert PeakMemoryCutByOneChange().remedy(found).text == REMEDIES[what]


def test_the_knobs_of_one_change_are_those_that_decide():
    table = PeakExperiments(1000 * MIB, (Change("foreach", 970 * MIB, 4, STEP),))
    rule = PeakMemoryCutByOneChange()
    assert len(list(rule.detect(table, ZeroGrads(), REHEARSAL))) == 0
    assert len(list(replace(rule, share=0.03).detect(table, ZeroGrads(), REHEARSAL))) == 1
    assert (
        len(list(replace(rule, share=0.03, least_mib=31.0).detect(table, ZeroGrads(), REHEARSAL)))
        == 0
    )


# -- MEM015 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, set()),
        ({"requested": 30 * MIB}, {"requested"}),
        ({"tried": 32 * MIB}, set()),
        ({"requested": 30 * MIB, "tried": 30 * MIB}, {"requested"}),
        ({"requested": 30 * MIB, "tried": 32 * MIB}, {"requested", "segment to hold it"}),
        ({"device_free": 0}, {"free on the device"}),
    ],
)
def test_what_is_known_of_an_out_of_memory_error_is_said(known, said):
    table = OutOfMemory(
        happened=True, reserved=100 * MIB, live=80 * MIB, largest_free=10 * MIB, site=LINE, **known
    )
    (found,) = ask(RanOutOfMemory(), table, CUDA)
    labels = {label for label, _ in found.facts}
    assert labels & {"requested", "segment to hold it", "free on the device"} == said
