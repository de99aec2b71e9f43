"""Which re-runs are made, what becomes of their answers, and what is told of them."""

from types import SimpleNamespace

import pytest

from auditor.extensions.plan import changes
from auditor.extensions.plan.command import lines
from auditor.extensions.plan.fitting import usable_bytes
from auditor.extensions.plan.planning import AS_IT_IS, Planning
from auditor.extensions.plan.reruns import Rerun
from auditor.model.gpus import gpu_named
from tests.extensions.plan.made import ADAM, MIB, formula, measured

T4, A10 = gpu_named("T4"), gpu_named("A10")


def linear(batch, wanted):
    each = 20 * MIB if wanted.change.checkpointed else 100 * MIB
    return 500 * MIB + batch * each * (0.6 if wanted.change.autocast else 1.0)


def planned(reruns, gpus=(T4,), budget=1e6, **more):
    planning = Planning(reruns, gpus, budget, **more)
    return planning.make()


def rows(result):
    return {row.name: row for row in result.rows}


def names(result):
    """Of the rows that have a peak."""
    return [row.name for row in result.rows if row.allocated is not None]


def test_each_change_is_a_row_with_a_larger_batch_where_it_saves():
    result = planned(formula(linear))
    told = rows(result)
    assert names(result)[:4] == [AS_IT_IS, "batch x2", "batch x4", changes.CHECKPOINTED]
    assert told[changes.CHECKPOINTED].largest["T4"].batch == 720
    assert told[changes.TOGETHER].largest["T4"].batch == 1208
    assert told[changes.ONE_BY_ONE].why == "the peak is not in the optimizer's step"
    assert told[changes.EXPANDABLE].why == "hardly more is reserved than tensors hold"
    assert "torch.utils.checkpoint.checkpoint(block, x" in told[changes.CHECKPOINTED].change


def test_the_largest_batch_of_an_epoch_is_a_row_where_batches_differ_in_size():
    def varying(batch, wanted):
        return 500 * MIB + batch * (400 if wanted.change.largest else 100) * MIB

    result = planned(formula(varying, even=False))
    row = rows(result)[changes.EPOCH]
    assert names(result)[:2] == [AS_IT_IS, changes.EPOCH]
    assert (row.batch, row.allocated, row.fits) == (8, 3700 * MIB, {"T4": "yes"})
    assert row.largest["T4"].batch == 32  # 144 with the batches that come first
    even = rows(planned(formula(varying)))[changes.EPOCH]
    assert even.allocated is None and "one size" in even.why


@pytest.mark.parametrize(
    ("even", "varies", "said"), [(True, 0.06, 1), (True, 0.04, 0), (False, 0.06, 0)]
)
def test_peaks_that_differ_are_a_note_without_the_largest_batch(even, varies, said):
    notes = planned(formula(linear, even=even, varies=varies)).notes
    assert sum("larger batches than these may need more" in note for note in notes) == said


def test_memory_that_does_not_fit_at_all():
    result = planned(formula(lambda batch, wanted: 60_000 * MIB + batch * MIB))
    row = rows(result)[AS_IT_IS]
    assert row.fits == {"T4": "no"} and row.smallest == "RTX-PRO-5000"
    assert row.largest["T4"].batch is None
    assert "no batch fits" in "\n".join(lines(result))


def test_a_batch_that_does_not_obey_is_said_and_not_shown():
    result = planned(formula(linear, obeys=False))
    told = rows(result)
    assert told["batch x2"].allocated is None and "no batches of 16" in told["batch x2"].why
    assert "batch x4" not in told and not told[AS_IT_IS].largest
    assert changes.CHECKPOINTED in told  # changes at the program's own batch go on


def test_without_time_what_was_not_run_is_estimated():
    reruns = formula(linear)
    planning, run = Planning(reruns, (T4,), 1e6), reruns.run

    def last(wanted):
        if planning.now == "batch x4":
            planning.budget_s = 0.0
        return run(wanted)

    reruns.run = last
    result = planning.make()
    largest = rows(result)[AS_IT_IS].largest["T4"]
    assert (largest.basis, largest.batch) == ("estimated", 144)
    assert "yes, ~144" in "\n".join(lines(result)) and "--budget" in largest.why
    told = rows(result)
    assert not told[changes.CHECKPOINTED].why and not told[changes.AUTOCAST].why
    assert not told[changes.CHECKPOINTED].largest, "changes come before the search for batches"


@pytest.mark.parametrize("outcome", ["timeout", "raised"])
def test_a_time_out_is_no_lack_of_memory(outcome, monkeypatch):
    """A batch too slow to be rehearsed stays predicted; one that cannot be taken is the end."""
    reruns = formula(linear)
    run = reruns.run

    def refuse(wanted):
        if (wanted.batch or 0) > 32:
            manifest = {"outcome": outcome, "error": {"type": "Timeout", "message": "x"}}
            reruns._refuse(SimpleNamespace(manifest=manifest, rows=lambda row: []))
        return run(wanted)

    monkeypatch.setattr(reruns, "run", refuse)
    result = planned(reruns)
    largest = rows(result)[AS_IT_IS].largest["T4"]
    if outcome == "timeout":
        assert (largest.basis, largest.batch) == ("estimated", 144)
        assert "--budget" in largest.why
    else:
        assert (largest.basis, largest.batch) == ("rehearsed", 32)
        assert "the program ended with Timeout" in largest.why


def test_an_interrupt_before_anything_is_known_ends_it():
    with pytest.raises(KeyboardInterrupt):
        planned(formula(linear, stop_at=1))


def test_sharding_is_arithmetic_and_marked():
    result = planned(formula(linear), world=8)
    told = {name: row for name, row in rows(result).items() if name.startswith("ZeRO")}
    peak = round(linear(8, Rerun()))
    assert [row.basis for row in told.values()] == ["estimated"] * 3
    first, second, third = told.values()
    assert first.allocated == peak - 70 * MIB
    assert second.allocated == peak - 105 * MIB + 5 * MIB
    assert third.allocated == peak - 140 * MIB + 30 * MIB
    text = "\n".join(lines(result))
    assert "~" in text and "ZeRO-3, 8 ranks: fully_shard(block) for each Block" in text


def test_without_blocks_there_is_no_third_stage():
    stages = changes.stages(measured(8, 500 * MIB, blocks=None), 8)
    assert [stage.name for stage in stages] == ["ZeRO-1", "ZeRO-2"]
    assert not list(changes.stages(measured(8, 500 * MIB, purposes=()), 8))


def test_what_does_not_apply_says_why():
    base = measured(8, 100 * MIB, 200 * MIB, autocast=True, blocks=None, optimizers=(ADAM,))
    told = {each.name: each for each in changes.options(base, "expandable_segments:True")}
    assert told[changes.CHECKPOINTED].why and told[changes.AUTOCAST].why
    assert told[changes.EXPANDABLE].why == "the environment sets it already"
    assert told[changes.FUSED].change.optimizer == {"fused": True}
    assert told[changes.FUSED].text == "AdamW(..., fused=True)"
    assert changes.TOGETHER not in told


def test_a_fused_optimizer_is_not_told_to_leave_lists():
    base = measured(8, 100 * MIB, 200 * MIB)
    base.optimizers[0].on.append("fused")
    try:
        told = {each.name: each for each in changes.options(base, "")}
    finally:
        base.optimizers[0].on.clear()
    assert told[changes.ONE_BY_ONE].why and told[changes.FUSED].why


def test_memory_reserved_beyond_tensors_is_tight():
    usable = usable_bytes(T4)
    result = planned(formula(lambda batch, wanted: usable / 1.05, slack=1.2))
    row = rows(result)[AS_IT_IS]
    assert row.fits == {"T4": "tight"} and row.smallest == "L4"
    assert changes.EXPANDABLE in rows(result) and not rows(result)[changes.EXPANDABLE].why
    assert row.largest["T4"].why == "the peak does not grow with the batch"
