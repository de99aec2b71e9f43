"""The rules about torch.compile at the edges of what they tell, on tables made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from auditor.rules.comp001_graph_break import GraphBreak
from auditor.rules.comp002_recompiles import RecompilesAgainAndAgain
from auditor.rules.comp003_recompile_limit import RecompileLimitReached
from auditor.rules.sync001_scalar_read import ScalarReadEveryStep

from auditor.evidence import Compiles, Machine
from auditor.evidence.recorded.compiles import Break, Recompiled
from auditor.evidence.source.statements import Statements
from auditor.judging.merging import causes_of, joined
from auditor.model import Finding, Site

MACHINE = Machine()
SITE = Site("train.py", 7, "forward", "scale = h.max().item()")
BREAK = Break(SITE, "forward", "Unsupported Tensor.item() call. It is not traced", "gb0124", True)
AGAIN = Recompiled(SITE, "forward", "self.phase == '3'", 3, 2, 2e6, own=True, limit=False)


def told(rule, breaks=(), recompiled=()):
    return list(rule.detect(Compiles(tuple(breaks), tuple(recompiled), 1, 1.0), MACHINE))


@pytest.mark.parametrize(
    ("reason", "said", "remedy"),
    [
        ("Unsupported Tensor.item() call. x", "a value of a tensor is read", "capture_scalar"),
        ("Tensor.tolist() with non-integer tensor. x", "values of a tensor are", "Keep them"),
        ("Data-dependent branching. x", "Python branches here", "torch.where"),
        ("Failed. It does not trace builtin operator `print`", "it prints here", "is_compiling"),
        ("Cannot construct `ConstantVariable` for value. x", "Cannot construct", "TORCH_LOGS"),
    ],
)
def test_a_break_is_said_in_plain_words(reason, said, remedy):
    (found,) = told(GraphBreak(), [replace(BREAK, reason=reason)])
    assert found.message.startswith(
        f"this line breaks the graph of `forward` that torch.compile makes: {said}"
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
    assert "breaks the graph that" in found.message


@pytest.mark.parametrize(("steps", "n"), [(1, 0), (2, 1), (3, 1)])
def test_two_steps_of_one_guard_are_needed(steps, n):
    assert len(told(RecompilesAgainAndAgain(), (), [replace(AGAIN, steps=steps)])) == n
    assert len(told(RecompilesAgainAndAgain(least=3), (), [replace(AGAIN, steps=steps)])) == (
        steps >= 3
    )


def test_a_recompilation_names_guard_and_time():
    (found,) = told(RecompilesAgainAndAgain(), (), [AGAIN])
    assert found.message == (
        "`forward` was compiled anew on 2 steps, since what is read here changes "
        "(`self.phase == '3'`): 2 s of compilation"
    )


@pytest.mark.parametrize(
    ("guard", "own", "said", "remedy"),
    [
        ("tensor 'x' size mismatch at index 1", False, "it is given here", "mark_dynamic"),
        ("self.param_groups[0]['lr'] == 0.1", False, "it is given here", "lr=torch.tensor"),
        ("self.phase == '3'", True, "is read here", "hand it in as a tensor"),
    ],
)
def test_what_to_do_follows_from_the_guard(guard, own, said, remedy):
    (found,) = told(RecompileLimitReached(), (), [replace(AGAIN, guard=guard, own=own, limit=True)])
    assert f"what {said} changes (`{guard}`)" in found.message
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
        ("x.sizes", "hand it in"),
    ],
)
def test_advice_by_the_guard(guard, word):
    (found,) = told(RecompilesAgainAndAgain(), (), [replace(AGAIN, guard=guard, function="")])
    assert word in RecompilesAgainAndAgain().remedy(found).text
    assert found.message.startswith("a compiled function was compiled anew")
