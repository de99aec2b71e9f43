"""Reads of tensors: which count, which belong together, how long they held the host."""

import pytest

from auditor.evidence.recorded.reads import Expression, Reads, act_of
from auditor.evidence.source.files import Source, Span
from auditor.model import Site
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, steps
from tests.rules import asking


def read(step=0, line=3, act="scalar", via="", text="loss.item()", span=None, **more):
    site = Site("trainer.py", line, "step", "if loss.item() > 1:")
    return asking.read(site, step, act, Expression("CALL", via, span, text), **more)


def place(*each, number=4, **more):
    return asking.place(*each, of=number, **more)


def reads(*each, number=4, device="rehearsal"):
    return Reads(device, number, each)


@pytest.mark.parametrize("device", ["cpu", "rehearsal"])
def test_without_a_device_nobody_is_held(device):
    found = place(read(us=8.0), device=device)
    assert (found.held_us, found.found_at[0].lost_us_per_step, len(found.facts)) == (None, None, 1)


def test_the_library_that_reads_on_the_lines_behalf():
    clip, glue = "torch/nn/utils/clip_grad.py:clip", "torch/_tensor.py:__bool__"
    found = place(read(via=clip), read(via="lib.py:f"), read(via=glue, act="branch"))
    assert found.library == f"lib.py:f, {clip}"
    often = found.per_step / 2
    assert found.through == f" (inside lib.py:f {often:g} per step, {clip} {often:g} per step)"
    assert ("reads inside", found.library) in found.facts
    assert place(read(via=clip), read(via=glue)).library == ""


def test_the_text_is_the_line_where_the_expression_is_unknown():
    assert place(read(text="")).text == "loss.item() > 1"
    assert place(read(text="x" * 99)).text.endswith("...")
    assert place(read(text=""), read(text="a", act="branch"), read(text="b")).text == "b"


@pytest.mark.parametrize(
    ("more", "counted"),
    [
        ({}, True),
        ({"lib": "loader"}, False),
        ({"via": "torch/nn/utils/clip_grad.py:clip_grad_norm_"}, False),
        ({"via": "torch/amp/grad_scaler.py:step"}, False),
        ({"via": "torch/cuda/amp/grad_scaler.py:step"}, False),
        ({"via": "torch/autograd/graph.py:run"}, False),
        ({"via": "torch/optim/adam.py:step"}, False),
        ({"via": "torch/utils/data/dataloader.py:next"}, False),
        ({"via": "torch/optim/lr_scheduler.py:step"}, True),
    ],
    ids=str,
)
def test_which_reads_are_the_lines_own(more, counted):
    assert reads().counts(read(**more)) is counted


def test_one_statement_is_one_place_in_the_order_of_the_source():
    rows = [
        read(line=8),
        read(line=3, span=Span(3, 3, 9, 12), text="late"),
        read(1, line=3, span=Span(3, 3, 2, 5), text="early"),
        read(line=3, lib="loader"),
        read(line=9, act="branch"),
    ]
    table = reads(*rows)
    three, eight = table.places("scalar")
    assert (three.site.line, eight.site.line) == (3, 8)
    assert [each.expression.text for each in three.reads] == ["early", "late"]
    assert [each.site.line for each in table.places("branch")] == [9]
    assert (three.steps, three.device) == (4, "rehearsal")


def test_what_the_line_itself_does_comes_before_its_library():
    rows = [read(act="branch", via="lib.py:f"), read(act="scalar")]
    assert [each.act for each in reads(*rows).all_places] == ["scalar"]


@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (("item", "print"), {"print"}),
        (("tolist", "print"), {"print"}),
        (("numpy", "tolist"), {"tolist"}),
        (("cpu", "to_cpu"), {"to_cpu"}),
        (("unique", "cpu"), {"cpu"}),
        (("item", "unique"), {"unique"}),
        (("item", "item"), {"item"}),
    ],
)
def test_the_outer_read_of_an_expression_is_the_lines(kinds, kept):
    rows = [read(kind=kind) for kind in kinds]
    (found,) = reads(*rows).places("scalar")
    assert {each.kind for each in found.reads} == kept


@pytest.mark.parametrize(
    ("kind", "via", "kept"),
    [
        ("cpu", "lib/ppo.py:train", {"item", "cpu"}),
        ("print", "lib/ppo.py:train", {"print"}),
        ("cpu", "torch/functional.py:unique", {"cpu"}),
    ],
)
def test_what_a_framework_copies_does_not_contain_what_it_reads_in_another_line(kind, via, kept):
    rows = [read(kind="item", via=via), read(kind=kind, act="transfer", via=via)]
    found = reads(*rows).all_places
    assert {each.kind for place in found for each in place.reads} == kept


def test_a_run_on_a_cpu_waits_for_nothing(seen):
    row = {"at": 0, "kind": "item", "n": 2}
    with pytest.raises(NotLooked, match="on a GPU and in a rehearsal"):
        seen(sites=[3], steps=steps(3), reads=[loud(0, **row)]).get(Reads)


@pytest.mark.parametrize(("span_us", "often"), [(1900.0, False), (2100.0, True)])
def test_a_burst_of_reads_is_a_phase_where_the_step_works_between_them(span_us, often):
    """20 ms in all of 20 steps, of which 2 ms are a tenth of a cycle."""
    times = tuple(11e3 if step in (4, 14) else 1e3 for step in range(20))
    two = [read(step, n=64, us=640.0, span_us=span_us) for step in (4, 14)]
    found = place(*two, number=20, step_us=times)
    assert found.pattern.often is often
    assert found.per_step == 6.4 and found.held_us == pytest.approx(64.0)
    assert found.found_at[0].per_step == 6.4


@pytest.mark.parametrize(
    ("kind", "via", "act"),
    [
        ("tolist", "", "transfer"),
        ("item", "torch/_tensor_str.py:_str", "transfer"),
        ("unique", "torch/functional.py:unique", "shape"),
        ("check", "", "scalar"),
        ("item", "lib.py:f", "scalar"),
        ("item", "torch/_tensor.py:__bool__", "branch"),
    ],
)
def test_what_a_read_is_for(kind, via, act):
    source = Source({"trainer.py": "if loss: pass"})
    assert act_of(kind, Expression("", via), Site("trainer.py", 1), source) == act


def test_libraries_by_how_often_they_read():
    found = place(read(via="a.py:f"), read(via="b.py:f", n=2), read(1, via="b.py:f"))
    assert found.through == " (inside b.py:f 0.75 per step, a.py:f 0.25 per step)"
    assert place(read(via="a.py:f")).through == " (inside a.py:f)"
    assert place(read()).through == ""
