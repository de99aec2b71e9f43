"""Work that nobody needed: one of each line, and what a training function hands on."""

import pytest
from auditor.rules.waste.wasting import ThrownWork, handed_on

from auditor.evidence.source.files import Source
from auditor.model import Site
from auditor.rule import NotLooked

WHOLE = {"pass": "numbers", "step": 3, "what": "all", "nbytes": 700, "trained": True}


def row(what="result", at=0, **more):
    facts = {"operators": 2.0, "share": 0.1, "nbytes": 8, "op": "aten::mm", "steps": 3, **more}
    return {"pass": "numbers", "step": 3, "what": what, "at": at, **facts}


def table(seen, *rows, sites=(3, 4, 5), whole=WHOLE, **parts):
    return seen(sites=sites, thrown=[whole, *rows], **parts).get(ThrownWork)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([], "not finished"),
        ([row()], "not finished"),
        ([{**WHOLE, "blind": "threads"}], "threads"),
        ([{**WHOLE, "trained": False}], "no optimizer stepped"),
        ([{**WHOLE, "trained": False, "blind": "threads"}], "threads"),
    ],
)
def test_where_nothing_can_be_said(seen, rows, why):
    with pytest.raises(NotLooked, match=why):
        seen(sites=[3], thrown=rows).get(ThrownWork)


def test_expressions_of_one_line_are_one(seen):
    more = {"n": 2, "products": 1, "lines": [1]}
    rows = [
        row(operators=1.0, share=0.1, nbytes=3, **more, steps=1),
        row(operators=4.0, share=0.3, nbytes=5, **more, steps=2),
        row(operators=4.0, share=0.2, nbytes=5, op="aten::add", n=1, lines=[2, 0], steps=3),
    ]
    (one,) = table(seen, *rows).found
    assert (one.operators, one.nbytes, one.n, one.products) == (9.0, 13, 5, 2)
    assert one.share == pytest.approx(0.6)
    assert one.op == "aten::mm, aten::add"
    assert [site.line for site in one.others] == [4, 5]  # not the line itself
    assert one.steps == 2  # of the one with most of the work


@pytest.mark.parametrize(
    ("rows", "number"),
    [
        ([row("result"), row("copy")], 2),
        ([row(at=0), row(at=1)], 2),
        ([row(owner="a"), row(owner="b")], 2),
        ([row(owner="a"), row(owner="a")], 1),
        ([row("constant"), row("constant")], 2),
    ],
)
def test_other_kinds_lines_owners_and_constants_stay_apart(seen, rows, number):
    assert len(table(seen, *rows).found) == number


def test_lines_that_copy_in_the_rehearsal(seen):
    copy = {"pass": "loud", "step": 0, "at": 0, "n": 1, "bytes": 4}
    seen(sites=[7], inside="rehearsal", copies=[copy])
    assert table(seen).copied_from == {("trainer.py", 7)}


# -- what is handed on -----------------------------------------------------------------------------


def handed(body, line, name="step"):
    text = f"def {name}(x):\n" + "".join(f"    {each}\n" for each in body.split("\n"))
    return handed_on(Source({"t.py": text}), Site("t.py", line, name, ""))


@pytest.mark.parametrize(
    ("body", "line", "given"),
    [
        ("a = f(x)\nx.backward()\nreturn a", 2, True),
        ("a = f(x)\nx.backward()\nreturn b", 2, False),
        ("a = f(x)\nx.backward()", 2, False),
        ("a = f(x)\nreturn a", 2, False),  # it does not train
        ("a = f(x)\nself.manual_backward(x)\nreturn a", 2, True),
        ("a = f(x)\noptimizer.zero_grad()\nreturn a", 2, True),
        ("a = f(x)\nx.backward()\nyield a", 2, True),
        ("x.backward()\nreturn f(x)", 3, True),
        ("x.backward()\nreturn (\n    f(x)\n)", 4, True),
        ("x.backward()\nf(x)\nreturn x", 3, False),
        ("a = (\n    f(x)\n)\nx.backward()\nreturn a", 3, True),
        ("a = f(x)\nb = a + 1\nc = b\nx.backward()\nreturn c", 2, True),
        ("c = b\nb = a\na = f(x)\nx.backward()\nreturn c", 4, True),  # in a loop it may be
        ("a += f(x)\nx.backward()\nreturn a", 2, True),
        ("a = f(x)\nb = g(x)\nx.backward()\nreturn b", 2, False),
        ("a = f(x)\nb = g(x)\nx.backward()\nreturn b", 3, True),
        ("f(a)\nx.backward()\nreturn a", 2, False),
    ],
)
def test_what_a_function_that_trains_returns(body, line, given):
    assert handed(body, line) is given


def test_the_innermost_function_around_the_line_counts():
    text = (
        "def outer(x):\n    def inner(y):\n        a = f(y)\n        return a\n"
        "    x.backward()\n    return inner(x)\n"
    )
    source = Source({"t.py": text})
    assert not handed_on(source, Site("t.py", 3, "", ""))
    assert handed_on(source, Site("t.py", 6, "", ""))
    assert not handed_on(Source({"t.py": "a = f(x)\nx.backward()\n"}), Site("t.py", 1, "", ""))
    after = Source({"t.py": "def step(x):\n    x.backward()\n    return a\na = f(x)\n"})
    assert not handed_on(after, Site("t.py", 4, "", ""))
    one_line = Source({"t.py": "async def step(x): x.backward(); return f(x)\n"})
    assert handed_on(one_line, Site("t.py", 1, "", ""))
