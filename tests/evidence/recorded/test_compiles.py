"""What was compiled: which breaks are still there, which guard failed how often."""

import pytest

from auditor.evidence.recorded.compiles import Compiles


def row(what, attempt=0, at=0, step=0, name="warmup", frame="0", **more):
    facts = {"pass": name, "step": step, "what": what, "at": at, "frame": frame}
    return {**facts, "attempt": attempt, "function": "forward", "own": True, **more}


def compiled(attempt=0, **more):
    return row("compile", attempt, us=1000.0, **more) | {"at": None}


def test_a_break_that_a_later_compilation_has_not_is_gone(seen):
    rows = [row("break", reason="old"), compiled(), compiled(1)]
    assert seen(sites=[3], compiles=rows, regions=[]).get(Compiles).breaks == ()
    again = [*rows[:2], row("break", 1, reason="new"), rows[2]]
    (found,) = seen(sites=[3], compiles=again, regions=[]).get(Compiles).breaks
    assert (found.site.line, found.reason, found.function) == (3, "new", "forward")


@pytest.mark.parametrize(
    ("given", "own", "line", "lost"),
    [("forward", False, 5, True), ("forward", True, 3, True), ("other", False, 3, False)],
)
def test_a_function_that_is_lost_has_its_own_line_if_it_was_given(seen, given, own, line, lost):
    regions = [{"pass": "warmup", "step": 0, "at": 0, "what": given}]
    rows = [row("break", lost=True, resumed=1, own=own)]
    (found,) = seen(sites=[3, 5], compiles=rows, regions=regions).get(Compiles).breaks
    assert (found.site.line, found.lost) == (line, lost)


def test_what_our_own_passes_cause_is_not_judged(seen):
    rows = [compiled()]
    for name in ("trace", "loud"):
        rows += [row("break", 1, name=name), row("recompile", 1, name=name), compiled(1, name=name)]
    table = seen(sites=[3], compiles=rows, regions=[]).get(Compiles)
    assert (table.breaks, table.recompiled, table.compiled, table.us) == ((), (), 1, 1000.0)


def failing(steps, reason="self.phase == '{}'"):
    return [
        each
        for step in steps
        for each in (
            row("recompile", step, step=step, reason=reason.format(step)),
            compiled(step, step=step),
        )
    ]


def test_values_of_one_guard_are_one(seen):
    rows = [compiled(), *failing([1, 2, 3])]
    (found,) = seen(sites=[3], compiles=rows, regions=[]).get(Compiles).recompiled
    assert (found.n, found.steps, found.us, found.guard) == (3, 3, 3000.0, "self.phase == '3'")
    assert not found.limit


def test_only_the_guard_that_led_to_the_limit_has_it(seen):
    rows = [compiled(), *failing([1, 2]), *failing([3], "self.training")]
    last = row("recompile", 4, step=4, reason="self.phase == '8'", function="")
    rows += [last, row("limit", 4, step=4, function="")]
    found = seen(sites=[3], compiles=rows, regions=[]).get(Compiles).recompiled
    wanted = [("self.phase == '8'", True, "forward"), ("self.training", False, "forward")]
    assert [(each.guard, each.limit, each.function) for each in found] == wanted


def test_lines_that_forbid_lengths_to_vary_are_known(seen):
    regions = [
        {"pass": "warmup", "step": 0, "number": n, "at": at, "what": "Net", "options": options}
        for n, (at, options) in enumerate(
            [(0, "dynamic=False, mode='x'"), (0, "dynamic=False"), (1, "dynamic=True"), (1, "")]
        )
    ]
    table = seen(sites=[3, 8], compiles=[compiled()], regions=regions).get(Compiles)
    assert [site.line for site in table.fixed] == [3]


def test_torchs_own_frame_has_the_name_of_the_only_region(seen):
    rows = [compiled(), row("recompile", 1, step=1) | {"function": ""}, compiled(1)]
    one = {"pass": "warmup", "step": 0, "number": 0, "at": 0, "what": "Net"}
    (found,) = seen(sites=[3], compiles=rows, regions=[one]).get(Compiles).recompiled
    assert found.function == "Net"
    both = [one, one | {"number": 1, "what": "Head"}]
    (found,) = seen(sites=[3], compiles=rows, regions=both).get(Compiles).recompiled
    assert found.function == ""


@pytest.mark.parametrize(("name", "since"), [("quiet", 4), ("warmup", None), ("anomaly_off", None)])
def test_the_timed_step_that_reached_the_limit_is_known(seen, name, since):
    rows = [compiled(), *failing([1, 2, 3])]
    last = row("recompile", 4, step=4, name=name, reason="self.phase == '8'")
    rows += [last, row("limit", 4, step=4, name=name), row("limit", 5, step=9, name=name)]
    (found,) = seen(sites=[3], compiles=rows, regions=[]).get(Compiles).recompiled
    assert (found.limit, found.since) == (True, since)
