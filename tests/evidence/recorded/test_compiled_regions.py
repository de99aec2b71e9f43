"""What was given to torch.compile, put together from the rows of all passes."""

import pytest

from auditor.evidence.recorded.compiles import CompiledRegions
from auditor.rule import NotLooked


def region(number=0, name="warmup", step=0, at=0, **more):
    return {
        "pass": name,
        "step": step,
        "number": number,
        "at": at,
        "what": "Net",
        "us": 100.0,
    } | more


def ran(number=0, name="quiet", **more):
    return {"pass": name, "step": 0, "number": number, **more}


def steps(**passes):
    return [
        {"pass": name, "step": step, "global_step": step, "us": 1.0, "rss": 0}
        for name, n in passes.items()
        for step in range(n)
    ]


def table(seen, regions, runs, **passes):
    passes = passes or {"warmup": 2, "quiet": 5}
    return seen(sites=[3, 8], regions=regions, region_runs=runs, steps=steps(**passes)).get(
        CompiledRegions
    )


def test_a_program_that_compiles_nothing_was_not_looked_at(seen):
    with pytest.raises(NotLooked, match="compiles nothing"):
        table(seen, [], [])


def test_steps_of_all_passes_are_added_up(seen):
    runs = [ran(name="warmup", steps=2, called=True), ran(steps=4, trained=True)]
    found = table(seen, [region(options="dynamic=False")], runs)
    (each,) = found.regions
    wanted = (6, 7, True, True, False)
    assert (each.steps, each.watched, each.called, each.trained, each.dropped) == wanted
    assert (each.site.line, each.what, each.options) == (3, "Net", "dynamic=False")
    assert found.ran
    assert found.in_steps == ()


def test_what_was_dropped_did_without_it_in_every_step(seen):
    (each,) = table(seen, [region()], [ran(name="warmup", dropped=True)]).regions
    assert (each.dropped, each.steps, each.watched) == (True, 0, 7)


def test_passes_in_which_it_was_not_there_do_not_count(seen):
    (each,) = table(seen, [region(name="quiet")], [ran()]).regions
    assert each.watched == 5


def test_what_nobody_knows_the_runs_of_is_left_out(seen):
    found = table(seen, [region(), region(1, at=1)], [ran(1)])
    assert [each.site.line for each in found.regions] == [8]
    assert not found.ran


def test_calls_in_steps_are_one_for_each_line(seen):
    regions = [
        region(number, "quiet", step=number // 2, at=number % 2, in_step=True, us=100.0 * number)
        for number in range(6)
    ]
    regions.append(region(6, "loud", step=7, in_step=True))
    found = table(seen, regions, [])
    wanted = [(3, 3, 200.0), (8, 3, 300.0)]
    assert [(each.site.line, each.made_on, each.us) for each in found.in_steps] == wanted
    assert found.regions == ()


def test_rows_without_a_place_are_left_out(seen):
    with_none = [region(at=None), region(1, at=None, name="quiet", in_step=True)]
    found = table(seen, with_none, [ran(), ran(1)])
    assert (found.regions, found.in_steps) == ((), ())
