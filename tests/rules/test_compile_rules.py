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

from auditor.evidence.recorded.compiles import Break, CompiledRegions, Compiles, Recompiled, Region
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.source.files import Source
from auditor.model import Site

SITE = Site("train.py", 7, "forward", "scale = h.max().item()")
BREAK = Break(SITE, "forward", "Unsupported Tensor.item() call. It is not traced", "gb0124", True)
AGAIN = Recompiled(SITE, "forward", "self.phase == '3'", 3, 2, 2e6, own=True, limit=False)


def told(rule, breaks=(), recompiled=(), steps=None):
    compiles = Compiles(tuple(breaks), tuple(recompiled), 1, 1.0)
    if isinstance(rule, GraphBreak):
        return list(rule.detect(compiles))
    return list(rule.detect(compiles, Steps() if steps is None else steps))


@pytest.mark.parametrize(
    "change",
    [
        {"own": False},
        {"reason": "Call to `torch._dynamo.graph_break()`"},
        {"reason": "Skip calling `torch.compiler.disable()`d function"},
        {"reason": "Unsupported Tensor.backward() call"},
    ],
    ids=str,
)
def test_a_break_that_is_meant_or_a_librarys_is_not_told(change):
    innocent = replace(BREAK, **change)
    assert told(GraphBreak(), [innocent]) == []
    assert len(told(GraphBreak(), [innocent, BREAK, innocent, BREAK])) == 2


def test_a_break_without_a_name_or_a_code_or_of_the_whole_function():
    (found,) = told(GraphBreak(), [replace(BREAK, function="", gb="")])
    assert "breaks the torch.compile graph" in found.message
    assert dict(found.facts)["its code"] == "none"
    (found,) = told(GraphBreak(), [replace(BREAK, own=False, lost=True, reason="on type autocast")])
    assert found.message == (
        "this line makes torch.compile skip `forward` altogether: autocast is entered here in "
        "a way that the compiler cannot trace"
    )
    assert "with torch.autocast" in GraphBreak().remedy(found).text


@pytest.mark.parametrize(("steps", "n"), [(1, 0), (2, 1), (3, 1)])
def test_two_steps_of_one_guard_are_needed(steps, n):
    again = [replace(AGAIN, steps=steps)]
    assert len(told(RecompilesAgainAndAgain(), (), again)) == n
    assert len(told(RecompilesAgainAndAgain(least=3), (), again)) == (steps >= 3)


def test_a_recompilation_names_guard_and_time():
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN])
    assert found.message == (
        "`forward` was recompiled on 2 steps because a value read here changes "
        "(`self.phase == '3'`): 2 s of compilation"
    )


TOOK = "2 s of compilation"


@pytest.mark.parametrize(
    ("us", "said"), [(1e6, f"{TOOK}, as long as 2 steps"), (1.01e6, TOOK), (0.0, TOOK)]
)
def test_compilation_is_told_in_steps_that_compiled_nothing(us, said):
    timed = [Step(number, us) for number in range(3)]
    steps = Steps(quiet=(Step(0, 9e6, compiles=1), *timed))
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN], steps)
    assert found.message.endswith(f": {said}")
    assert (found.lost_us_per_step, found.basis) == (None, "none")
    all_compiled = Steps(quiet=(Step(0, 9.0, compiles=1),) * 8)
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN], all_compiled)
    assert found.message.endswith(f": {TOOK}")


def quiet(n, us=1000.0):
    return tuple(Step(number, us * (1 + number * 7 % 11 / 300)) for number in range(n))


GIVEN_UP = replace(AGAIN, limit=True, since=20)


def slower(by, n=40, at=20):
    """Steps of 1 ms that compile now and then up to ``at``, and take ``by`` us more after it."""
    steps = (replace(step, us=step.us + by * (step.number > at)) for step in quiet(n))
    return Steps(
        quiet=tuple(
            step if step.number >= at or step.number % 4 else replace(step, us=9e5, compiles=1)
            for step in steps
        )
    )


@pytest.mark.parametrize("n", [40, 26])  # five steps on each side are enough
def test_what_the_limit_costs_is_measured_inside_the_timing_pass(n):
    (found,) = told(RecompileLimitReached(), (), [GIVEN_UP], slower(500.0, n))
    assert found.basis == "measured"
    assert 0 < found.lost_us_per_step_low < found.lost_us_per_step < found.lost_us_per_step_high
    assert n < 40 or found.message.endswith("a step has been 500 us slower since")


@pytest.mark.parametrize(
    ("guard", "own", "remedy"),
    [
        ("tensor 'x' size mismatch at index 1", False, "mark_dynamic"),
        ("x.size()[0] == 3", False, "mark_dynamic"),
        ("stride of x", False, "mark_dynamic"),
        ("self.param_groups[0]['lr'] == 0.1", False, "lr=torch.tensor"),
        ("self.phase == '3'", True, "pass it as a tensor"),
        ("x.sizes", True, "pass it as"),
    ],
)
def test_what_to_do_follows_from_the_guard(guard, own, remedy):
    again = replace(AGAIN, guard=guard, own=own, function="")
    for rule, limit in ((RecompileLimitReached(), True), (RecompilesAgainAndAgain(), False)):
        (found,) = told(rule, (), [replace(again, limit=limit)])
        assert f"a value {'read' if own else 'given'} here changes (`{guard}`)" in found.message
        assert "a compiled function" in found.message and remedy in rule.remedy(found).text


def test_what_stands_behind_an_innocent_one_is_told():
    seldom, reached = replace(AGAIN, steps=1), replace(AGAIN, limit=True)
    assert len(told(RecompilesAgainAndAgain(), (), [seldom, AGAIN, seldom, AGAIN])) == 2
    assert len(told(RecompileLimitReached(), (), [AGAIN, reached, AGAIN, reached])) == 2


def test_a_function_at_its_limit_is_told_once():
    both = [AGAIN, replace(AGAIN, limit=True, guard="self.n == 8")]
    assert told(RecompilesAgainAndAgain(), (), both) == []
    (found,) = told(RecompileLimitReached(), (), both)
    assert "self.n == 8" in found.message


MADE = Site("train.py", 2, "", "net = torch.compile(net)")
UNUSED = Region(MADE, "Net", watched=20, trained=True)
TEXT = "import torch\nnet = torch.compile(net)\n"


def unused(*regions, text=TEXT, compiles=Compiles(compiled=1)):
    table = CompiledRegions(tuple(regions))
    source = Source({"train.py": text})
    return list(CompiledUnused().detect(table, compiles, source))


@pytest.mark.parametrize(
    ("change", "text", "said", "remedy"),
    [
        (
            {},
            TEXT,
            "the compiled code never ran, though its parameters are trained: `Net` runs without the",
            "net.compile()",
        ),
        ({"trained": False, "dropped": True}, TEXT, "the result of torch.compile is not kept", ""),
        ({"method": True}, "", "", "model.forward(x) bypasses"),
    ],
)
def test_a_module_that_is_trained_without_its_compiled_form_is_told(change, text, said, remedy):
    (found,) = unused(replace(UNUSED, **change), text=text)
    assert found.message.startswith(said)
    assert remedy in CompiledUnused().remedy(found).text


TORCHS = Region(MADE, "Sequential", steps=5, watched=5, called=True, method=True, torchs=True)
HEAD = Region(Site("train.py", 9), "Head", steps=3, watched=20)
MADE_ONE, NONE = Compiles(compiled=1), Compiles()


@pytest.mark.parametrize(
    ("regions", "compiles", "n"),
    [
        ([replace(UNUSED, watched=4)], MADE_ONE, 0),
        ([replace(UNUSED, watched=5)], MADE_ONE, 1),
        ([replace(UNUSED, steps=1)], MADE_ONE, 0),
        ([replace(UNUSED, called=True)], MADE_ONE, 0),
        ([replace(UNUSED, trained=False)], MADE_ONE, 0),
        ([replace(UNUSED, dropped=True, called=True)], MADE_ONE, 0),
        ([UNUSED, HEAD], MADE_ONE, 0),  # another region may contain it
        ([replace(UNUSED, dropped=True), HEAD], MADE_ONE, 1),
        ([TORCHS, TORCHS], NONE, 1),
        ([TORCHS], MADE_ONE, 0),
        ([TORCHS], Compiles((BREAK,)), 0),
        ([replace(TORCHS, torchs=False)], NONE, 0),
        ([replace(TORCHS, method=False)], NONE, 0),
        ([replace(TORCHS, steps=4)], NONE, 0),
    ],
)
def test_what_ran_or_is_not_trained_is_silent(regions, compiles, n):
    assert len(unused(*regions, compiles=compiles)) == n


def test_a_class_of_torch_that_is_compiled_in_place_and_made_nothing_is_told():
    (found,) = unused(TORCHS, compiles=NONE)
    assert found.message == (
        "nothing is compiled here: `Sequential` is a class of torch, which this version does not "
        "compile in place"
    )
    assert "call the result" in CompiledUnused().remedy(found).text


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


@pytest.mark.parametrize(("again_us", "n"), [(1000.0, 1), (700.0, 1), (500.0, 0), (400.0, 0)])
def test_compiled_steps_must_be_slower_on_both_sides_of_the_eager_ones(again_us, n):
    steps = Steps(
        quiet(30, 1000.0), eager_held=quiet(30, 500.0), compiled_again=quiet(30, again_us)
    )
    regions = CompiledRegions((Region(MADE, "Net", steps=30),))
    found = list(CompileDoesNotPay().detect(regions, MADE_ONE, steps))
    assert len(found) == n
    assert list(CompileDoesNotPay().detect(regions, NONE, steps)) == []  # another rule says why


@pytest.mark.parametrize(
    ("eager_us", "more", "n"),
    [
        (1500.0, {}, 0),
        (1000.0, {}, 0),
        (990.0, {}, 0),
        (950.0, {}, 1),
        (950.0, {"share": 0.2}, 0),
        (985.0, {"share": 0.0}, 1),
        (500.0, {"n": 4}, 0),
        (500.0, {"regions": (Region(MADE, "Net"),)}, 0),
        (500.0, {"regions": ()}, 0),
        (500.0, {"recompiled": [replace(AGAIN, limit=True)]}, 0),
        (500.0, {"recompiled": [AGAIN]}, 1),
    ],
)
def test_the_difference_must_be_proven_and_not_small(eager_us, more, n):
    assert len(against(eager_us, **more)) == n


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_a_backend_for_debugging_is_named(name):
    debugging = Region(MADE, "Net", options=f"backend={name!r}", steps=9)
    (found,) = against(500.0, regions=(debugging,))
    assert f"the backend {name!r} generates no code" in found.message
    assert "Drop backend" in CompileDoesNotPay().remedy(found).text
    (found,) = against(500.0, regions=(debugging, Region(MADE, "Head", steps=9)))
    assert "generates no code" not in found.message


SIZES = "tensor 'x' size mismatch at index 1"


@pytest.mark.parametrize(
    ("guard", "fixed", "edited"),
    [
        (SIZES, (MADE,), True),
        (SIZES, (), False),
        (SIZES, (MADE, SITE), False),
        ("self.phase == '3'", (MADE,), False),
    ],
)
def test_lengths_that_may_not_vary_are_let_vary(guard, fixed, edited):
    table = Compiles((), (replace(AGAIN, guard=guard),), 1, 1.0, fixed)
    (found,) = RecompilesAgainAndAgain().detect(table, Steps())
    edits = RecompilesAgainAndAgain().remedy(found).edits
    made = [(each.site, each.action, each.keyword) for each in edits]
    assert made == [(MADE, "drop_keyword", "dynamic")] * edited
