"""The rules about torch.compile at the edges of what they tell, on tables made by hand."""

from dataclasses import replace

import pytest
from auditor.rules.comp.compiled import (
    CompiledInStep,
    CompileDoesNotPay,
    CompiledUnused,
    GraphBreak,
    RecompileLimitReached,
    RecompilesAgainAndAgain,
)
from auditor.rules.sync.waiting import ScalarReadEveryStep

from auditor.evidence.recorded.compiles import Break, CompiledRegions, Compiles, Recompiled, Region
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.source.files import Source, Statements
from auditor.judging.engine import causes_of, joined
from auditor.model import Finding, Site

SITE = Site("train.py", 7, "forward", "scale = h.max().item()")
BREAK = Break(SITE, "forward", "Unsupported Tensor.item() call. It is not traced", "gb0124", True)
AGAIN = Recompiled(SITE, "forward", "self.phase == '3'", 3, 2, 2e6, own=True, limit=False)


def told(rule, breaks=(), recompiled=(), steps=None):
    compiles = Compiles(tuple(breaks), tuple(recompiled), 1, 1.0)
    if isinstance(rule, GraphBreak):
        return list(rule.detect(compiles))
    return list(rule.detect(compiles, Steps() if steps is None else steps))


@pytest.mark.parametrize(
    ("reason", "said", "remedy"),
    [
        ("Unsupported Tensor.item() call. x", "it reads a tensor's value on", "capture_scalar"),
        (
            "Tensor.tolist() with non-integer tensor. x",
            "it reads a tensor's values on",
            "Keep them",
        ),
        ("Data-dependent branching. x", "Python branches here", "torch.where"),
        ("Failed. It does not trace builtin operator `print`", "it prints here", "is_compiling"),
        ("Cannot construct `ConstantVariable` for value. x", "Cannot construct", "TORCH_LOGS"),
    ],
)
def test_a_break_is_said_in_plain_words(reason, said, remedy):
    (found,) = told(GraphBreak(), [replace(BREAK, reason=reason)])
    assert found.message.startswith(
        f"this line breaks the torch.compile graph of `forward`: {said}"
    )
    assert remedy in GraphBreak().remedy(found).text


@pytest.mark.parametrize(
    "innocent",
    [
        replace(BREAK, own=False),
        replace(BREAK, reason="Call to `torch._dynamo.graph_break()`"),
        replace(BREAK, reason="Skip calling `torch.compiler.disable()`d function"),
        replace(BREAK, reason="Unsupported Tensor.backward() call"),
    ],
)
def test_a_break_that_is_meant_or_a_librarys_is_not_told(innocent):
    assert told(GraphBreak(), [innocent]) == []


def test_a_function_without_a_name_is_told_too():
    (found,) = told(GraphBreak(), [replace(BREAK, function="")])
    assert "breaks the torch.compile graph" in found.message


@pytest.mark.parametrize(("steps", "n"), [(1, 0), (2, 1), (3, 1)])
def test_two_steps_of_one_guard_are_needed(steps, n):
    assert len(told(RecompilesAgainAndAgain(), (), [replace(AGAIN, steps=steps)])) == n
    assert len(told(RecompilesAgainAndAgain(least=3), (), [replace(AGAIN, steps=steps)])) == (
        steps >= 3
    )


def test_a_recompilation_names_guard_and_time():
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN])
    assert found.message == (
        "`forward` was recompiled on 2 steps because a value read here changes "
        "(`self.phase == '3'`): 2 s of compilation"
    )


@pytest.mark.parametrize(
    ("us", "said"),
    [
        (1e6, "2 s of compilation, as long as 2 steps"),
        (1.01e6, "2 s of compilation"),
        (0.0, "2 s of compilation"),
    ],
)
def test_compilation_is_told_in_steps_that_compiled_nothing(us, said):
    timed = [Step(number, us) for number in range(3)]
    steps = Steps(quiet=(Step(0, 9e6, compiles=1), *timed))
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN], steps)
    assert found.message.endswith(f": {said}")
    assert (found.lost_us_per_step, found.basis) == (None, "none")


def test_where_every_step_compiled_no_steps_are_told():
    steps = Steps(quiet=tuple(Step(number, 9.0, compiles=1) for number in range(8)))
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN], steps)
    assert found.message.endswith(": 2 s of compilation")


def quiet(n, us=1000.0):
    return tuple(Step(number, us * (1 + number * 7 % 11 / 300)) for number in range(n))


GIVEN_UP = replace(AGAIN, limit=True, since=20)


def slower(by, n=40, at=20):
    """Steps of 1 ms that compile now and then up to ``at``, and take ``by`` us more after it."""
    return Steps(
        quiet=tuple(
            replace(step, us=9e5, compiles=1)
            if step.number < at and step.number % 4 == 0
            else replace(step, us=step.us + by * (step.number > at))
            for step in quiet(n)
        )
    )


def test_what_the_limit_costs_is_measured_inside_the_timing_pass():
    (found,) = told(RecompileLimitReached(), (), [GIVEN_UP], slower(500.0))
    assert found.message.endswith("a step has been 500 us slower since")
    assert found.basis == "measured"
    assert 0 < found.lost_us_per_step_low < found.lost_us_per_step < found.lost_us_per_step_high


def test_five_steps_on_each_side_of_the_limit_are_enough():
    (found,) = told(RecompileLimitReached(), (), [GIVEN_UP], slower(500.0, n=26))
    assert found.basis == "measured"


@pytest.mark.parametrize(
    ("guard", "own", "said", "remedy"),
    [
        ("tensor 'x' size mismatch at index 1", False, "given here", "mark_dynamic"),
        ("self.param_groups[0]['lr'] == 0.1", False, "given here", "lr=torch.tensor"),
        ("self.phase == '3'", True, "read here", "pass it as a tensor"),
    ],
)
def test_what_to_do_follows_from_the_guard(guard, own, said, remedy):
    (found,) = told(RecompileLimitReached(), (), [replace(AGAIN, guard=guard, own=own, limit=True)])
    assert f"a value {said} changes (`{guard}`)" in found.message
    assert remedy in RecompileLimitReached().remedy(found).text


def test_a_function_at_its_limit_is_told_once():
    both = [AGAIN, replace(AGAIN, limit=True, guard="self.n == 8")]
    assert told(RecompilesAgainAndAgain(), (), both) == []
    (found,) = told(RecompileLimitReached(), (), both)
    assert "self.n == 8" in found.message


def test_a_read_that_breaks_a_graph_is_one_finding_with_the_wait():
    rules = (GraphBreak, ScalarReadEveryStep)
    findings = [Finding(SITE, "a", code="COMP001"), Finding(SITE, "b", code="SYNC001")]
    (one,) = joined(findings, causes_of(rules), Statements())
    assert one.code == "SYNC001"
    assert one.codes == ("SYNC001", "COMP001")


MADE = Site("train.py", 2, "", "net = torch.compile(net)")
UNUSED = Region(MADE, "Net", watched=20, trained=True)
TEXT = "import torch\nnet = torch.compile(net)\n"


def unused(*regions, text=TEXT, compiles=Compiles(compiled=1)):
    table = CompiledRegions(tuple(regions))
    source = Source({"train.py": text})
    return list(CompiledUnused().detect(table, compiles, source))


def test_a_module_that_is_trained_without_its_compiled_form_is_told():
    (found,) = unused(UNUSED)
    assert found.message == (
        "the compiled code never ran, though its parameters are trained: `Net` runs without the "
        "compiler"
    )
    assert "net.compile()" in CompiledUnused().remedy(found).text
    (found,) = unused(replace(UNUSED, trained=False, dropped=True))
    assert found.message.startswith("the result of torch.compile is not kept")
    (found,) = unused(replace(UNUSED, method=True), text="")
    assert "model.forward(x) bypasses" in CompiledUnused().remedy(found).text


@pytest.mark.parametrize(("watched", "n"), [(4, 0), (5, 1)])
def test_five_steps_without_it_are_needed(watched, n):
    assert len(unused(replace(UNUSED, watched=watched))) == n


@pytest.mark.parametrize(
    "innocent",
    [
        replace(UNUSED, steps=1),
        replace(UNUSED, called=True),
        replace(UNUSED, trained=False),
        replace(UNUSED, dropped=True, called=True),
    ],
)
def test_what_ran_or_is_not_trained_is_silent(innocent):
    assert unused(innocent) == []


TORCHS = Region(MADE, "Sequential", steps=5, watched=5, called=True, method=True, torchs=True)


def test_a_class_of_torch_that_is_compiled_in_place_and_made_nothing_is_told_once():
    (found,) = unused(TORCHS, TORCHS, compiles=Compiles())
    assert found.message == (
        "nothing is compiled here: `Sequential` is a class of torch, which this version does not "
        "compile in place"
    )
    assert "call the result" in CompiledUnused().remedy(found).text


@pytest.mark.parametrize(
    ("region", "compiles"),
    [
        (TORCHS, Compiles(compiled=1)),
        (TORCHS, Compiles((BREAK,))),
        (replace(TORCHS, torchs=False), Compiles()),
        (replace(TORCHS, method=False), Compiles()),
        (replace(TORCHS, steps=4), Compiles()),
    ],
)
def test_one_that_made_something_or_is_the_users_own_is_silent(region, compiles):
    assert unused(region, compiles=compiles) == []


def test_a_line_that_leaves_the_whole_function_to_python_is_told():
    (found,) = told(GraphBreak(), [replace(BREAK, own=False, lost=True, reason="on type autocast")])
    assert found.message == (
        "this line makes torch.compile skip `forward` altogether: autocast is entered here in "
        "a way that the compiler cannot trace"
    )
    assert "with torch.autocast" in GraphBreak().remedy(found).text


def test_what_another_region_may_contain_is_silent_unless_it_is_dropped():
    other = Region(Site("train.py", 9), "Head", steps=3, watched=20)
    assert unused(UNUSED, other) == []
    assert len(unused(replace(UNUSED, dropped=True), other)) == 1


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("\nfast = torch.compile(net)\n", 1),
        ("\nfast = torch.compile(net)\nfast(x)\n", 0),
        ("\nnet = torch.compile(net)\nnet(x)\n", 1),
        ("\nkept[0] = torch.compile(net)\n", 0),
        ("", 0),
    ],
)
def test_a_second_name_that_is_read_may_be_for_later(text, n):
    assert len(unused(UNUSED, text=text)) == n


def in_step(made_on, taken=12, **knobs):
    region = Region(MADE, "Net", made_on=made_on, us=800.0)
    steps = Steps(quiet=quiet(taken))
    return list(CompiledInStep(**knobs).detect(CompiledRegions((), (region,)), steps))


@pytest.mark.parametrize(
    ("made_on", "taken", "n"), [(2, 6, 0), (3, 6, 1), (4, 20, 0), (5, 20, 1), (3, 12, 1)]
)
def test_a_line_that_compiles_on_every_step_is_told(made_on, taken, n):
    assert len(in_step(made_on, taken)) == n
    assert len(in_step(made_on, taken, least=99)) == 0
    assert len(in_step(made_on, taken, share=0.0, least=1)) == 1


def test_the_calls_themselves_are_the_price():
    (found,) = in_step(12)
    assert found.message == "`Net` is passed to torch.compile on 12 steps"
    assert (found.lost_us_per_step, found.basis) == (800.0, "measured")


def against(eager_us, compiled_us=1000.0, n=60, regions=None, recompiled=(), **knobs):
    steps = Steps(quiet=quiet(n, compiled_us), eager_held=quiet(n, eager_us))
    given = (Region(MADE, "Net", steps=n),) if regions is None else regions
    compiles = Compiles((), tuple(recompiled), 1, 1.0)
    return list(CompileDoesNotPay(**knobs).detect(CompiledRegions(given), compiles, steps))


def test_a_step_that_is_slower_compiled_is_told_with_its_price():
    (found,) = against(500.0)
    assert found.message.startswith("without torch.compile the step takes 508 us less")
    assert found.basis == "measured"
    assert found.lost_us_per_step_low < found.lost_us_per_step < found.lost_us_per_step_high
    assert found.site == MADE
    assert "graph breaks first" in CompileDoesNotPay().remedy(found).text


@pytest.mark.parametrize(("eager_us", "n"), [(1500.0, 0), (1000.0, 0), (990.0, 0), (950.0, 1)])
def test_the_difference_must_be_proven_and_not_small(eager_us, n):
    assert len(against(eager_us)) == n


@pytest.mark.parametrize(("again_us", "n"), [(1000.0, 1), (700.0, 1), (500.0, 0), (400.0, 0)])
def test_compiled_steps_must_be_slower_on_both_sides_of_the_eager_ones(again_us, n):
    steps = Steps(
        quiet(30, 1000.0), eager_held=quiet(30, 500.0), compiled_again=quiet(30, again_us)
    )
    regions = CompiledRegions((Region(MADE, "Net", steps=30),))
    found = list(CompileDoesNotPay().detect(regions, Compiles(compiled=1), steps))
    assert len(found) == n
    assert all(each.facts[0][1] == "60, 30" for each in found)


def test_where_nothing_was_compiled_another_rule_says_why():
    steps = Steps(quiet=quiet(30, 1000.0), eager_held=quiet(30, 500.0))
    regions = CompiledRegions((Region(MADE, "Net", steps=30),))
    for compiled, n in ((0, 0), (1, 1)):
        compiles = Compiles(compiled=compiled)
        assert len(list(CompileDoesNotPay().detect(regions, compiles, steps))) == n


def test_the_share_is_a_knob_and_few_steps_say_nothing():
    assert len(against(950.0, share=0.2)) == 0
    assert len(against(985.0, share=0.0)) == 1
    assert against(500.0, n=4) == []
    assert against(500.0, regions=(Region(MADE, "Net"),)) == []
    assert against(500.0, regions=()) == []
    assert against(500.0, recompiled=[replace(AGAIN, limit=True)]) == []
    assert len(against(500.0, recompiled=[AGAIN])) == 1


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_a_backend_for_debugging_is_named(name):
    debugging = Region(MADE, "Net", options=f"backend={name!r}", steps=9)
    (found,) = against(500.0, regions=(debugging,))
    assert f"the backend {name!r} generates no code" in found.message
    assert "Drop backend" in CompileDoesNotPay().remedy(found).text
    (found,) = against(500.0, regions=(debugging, Region(MADE, "Head", steps=9)))
    assert "generates no code" not in found.message


@pytest.mark.parametrize(
    ("guard", "fixed", "edited"),
    [
        ("tensor 'x' size mismatch at index 1", (MADE,), True),
        ("tensor 'x' size mismatch at index 1", (), False),
        ("tensor 'x' size mismatch at index 1", (MADE, SITE), False),
        ("self.phase == '3'", (MADE,), False),
    ],
)
def test_lengths_that_may_not_vary_are_let_vary(guard, fixed, edited):
    table = Compiles((), (replace(AGAIN, guard=guard),), 1, 1.0, fixed)
    (found,) = RecompilesAgainAndAgain().detect(table, Steps())
    edits = RecompilesAgainAndAgain().remedy(found).edits
    assert [(each.site, each.action, each.keyword) for each in edits] == [
        (MADE, "drop_keyword", "dynamic")
    ] * edited


def test_what_stands_behind_an_innocent_one_is_told():
    mine = replace(BREAK, own=False)
    assert len(told(GraphBreak(), [mine, BREAK, mine, BREAK])) == 2
    seldom = replace(AGAIN, steps=1)
    assert len(told(RecompilesAgainAndAgain(), (), [seldom, AGAIN, seldom, AGAIN])) == 2
    reached = replace(AGAIN, limit=True)
    assert len(told(RecompileLimitReached(), (), [AGAIN, reached, AGAIN, reached])) == 2


def test_facts_of_a_break_without_a_code():
    (found,) = told(GraphBreak(), [replace(BREAK, gb="")])
    assert dict(found.facts)["its code"] == "none"


@pytest.mark.parametrize(
    ("guard", "word"),
    [
        ("x.size()[0] == 3", "mark_dynamic"),
        ("stride of x", "mark_dynamic"),
        ("size mismatch", "mark_dynamic"),
        ("g['lr']", "lr=torch.tensor"),
        ("x.sizes", "pass it as"),
    ],
)
def test_advice_by_the_guard(guard, word):
    (found,) = told(RecompilesAgainAndAgain(), (), [replace(AGAIN, guard=guard, function="")])
    assert word in RecompilesAgainAndAgain().remedy(found).text
    assert found.message.startswith("a compiled function was recompiled")
