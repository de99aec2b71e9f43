"""What a program does with a handler's word: the branches that it decides, and what it tries again
unchanged.
"""

from __future__ import annotations

import ast

import pytest
from auditor.rules.mem.oom_answers import answers, attempts_in_vain, repeats_unchanged

from auditor.syntax.index import index_of


def parts(text):
    index = index_of(text)
    return index, index.of(ast.Try)[0]


def told(handler, behind, *, scope="step", callers=""):
    """Statements of the branches that run because the handler ran, as they are written."""
    text = f"def {scope}():\n try:\n  run()\n except Error:\n"
    text += "".join(f"  {line}\n" for line in handler.split("\n"))
    text += "".join(f" {line}\n" for line in behind.split("\n"))
    index, tried = parts(text + callers)
    function = index.tree.body[0]
    found = answers(index, function, tried.handlers[0], function.body[1:])
    return sorted("; ".join(map(ast.unparse, branch)) for branch in found)


@pytest.mark.parametrize(
    ("value", "test", "taken"),
    [
        ("True", "x", "yes()"),
        ("False", "x", "no()"),
        ("True", "not x", "no()"),
        ("False", "not x", "yes()"),
        ("None", "x", "no()"),
        ("0", "x", "no()"),
        ("1", "x", "yes()"),
        ("f()", "x", "yes()"),
        ("None", "x is None", "yes()"),
        ("None", "x is not None", "no()"),
        ("None", "x == None", "yes()"),
        ("None", "x != None", "no()"),
        ("3", "x == 3", "yes()"),
        ("3", "x == 4", "no()"),
        ("3", "x != 4", "yes()"),
        ("f()", "x is None", "no()"),
        ("f()", "x is not None", "yes()"),
        ("3", "x < 4", None),
        ("3", "x == y", None),
        ("3", "2 < x < 4", None),
        ("3", "x == 3 == y", None),
        ("3", "3 == x", None),
        ("True", "y", None),
        ("True", "x.y", None),
        ("True", "x or y", "yes()"),
        ("False", "x or y", "no()"),
        ("False", "x and y", "no()"),
        ("True", "x and y", "yes()"),
        ("True", "y and z", None),
        ("True", "y or z", None),
        ("True", "not y", None),
        ("True", "not x or not x", "no()"),
        ("True", "y and not x", "no()"),
    ],
)
def test_the_branch_that_a_value_decides(value, test, taken):
    branches = told(f"x = {value}", f"if {test}:\n yes()\nelse:\n no()")
    assert branches == ([] if taken is None else [taken])


def test_each_name_that_the_handler_assigns_decides():
    behind = "if a:\n one()\nwhile b:\n two()\nif c:\n three()\nd(a)"
    assert told("a = b = True", behind) == ["one()", "two()"]
    assert told("a = True\nc = True", behind) == ["one()", "three()"]
    assert told("a: bool = True", behind) == []
    assert told("self.failed = True", "if self.failed:\n one()") == ["one()"]


@pytest.mark.parametrize(
    ("caller", "taken"),
    [
        ("if step() is None:\n yes()\nelse:\n no()\n", ["yes()"]),
        ("if not step():\n yes()\n", ["yes()"]),
        ("if step():\n yes()\nelse:\n no()\n", ["no()"]),
        ("while self.step():\n yes()\nelse:\n no()\n", ["no()"]),
        ("loss = step()\nif loss is None:\n yes()\n", ["yes()"]),
        ("a = b = step()\nif a:\n one()\nelse:\n two()\nif b:\n three()\n", ["", "two()"]),
        ("loss = step()\nif other is None:\n yes()\n", []),
        ("loss = other()\nif loss is None:\n yes()\n", []),
        ("if other() is None:\n yes()\n", []),
        ("def main():\n loss = step()\n if loss is None:\n  yes()\n", ["yes()"]),
        ("loss = step()\ndef main():\n if loss is None:\n  yes()\n", []),
        ("run = lambda: step()\nif run is None:\n yes()\n", []),
    ],
)
def test_the_branch_where_a_call_came_back_without_a_result(caller, taken):
    assert told("return", "pass", callers=caller) == taken


def test_a_function_does_not_answer_its_own_call_and_dunders_have_many_callers():
    assert told("return", "if step() is None:\n yes()") == []
    caller = "if {}() is None:\n yes()\n"
    assert told("return", "pass", scope="__call__", callers=caller.format("__call__")) == []
    assert told("return", "pass", scope="_call", callers=caller.format("_call")) == ["yes()"]


def test_a_script_has_no_caller():
    index, tried = parts("try:\n run()\nexcept Error:\n failed = 1\nif failed:\n yes()\n")
    (branch,) = answers(index, index.tree, tried.handlers[0], index.tree.body[1:])
    assert ast.unparse(branch[0]) == "yes()"


def repeated(*, loop="while True:", before="", tried="run(x)\nbreak", handler="pass", after=""):
    def lines(text, indent):
        return "".join(f"{indent}{line}\n" for line in text.split("\n")) if text else ""

    text = (
        f"{loop}\n{lines(before, ' ')} try:\n{lines(tried, '  ')} except Error:\n"
        f"{lines(handler, '  ')}{lines(after, ' ')}"
    )
    index, node = parts(text)
    return repeats_unchanged(index.tree.body[0], node, node.handlers[0])


@pytest.mark.parametrize(
    ("what", "unchanged"),
    [
        ({}, True),
        ({"loop": "while 1:"}, True),
        ({"loop": "for x in xs:"}, False),
        ({"loop": "while not done:", "tried": "run(x)\ndone = True"}, True),
        ({"loop": "while more:", "tried": "run(x)\nmore = False"}, True),
        ({"loop": "while not done:", "tried": "run(x)\nother = True"}, False),
        ({"loop": "while not done:", "tried": "run(done)"}, False),
        ({"loop": "while n < 3:", "tried": "run(x)\nn = 3"}, False),
        ({"loop": "while -done:", "tried": "run(x)\ndone = True"}, False),
        ({"loop": "while self.more:", "tried": "run(x)\nself.more = False"}, False),
    ],
)
def test_only_a_loop_without_an_end_of_its_own_repeats(what, unchanged):
    assert repeated(**what) is unchanged


def test_a_flag_that_the_else_of_the_try_sets():
    text = "while not done:\n try:\n  run(x)\n except Error:\n  pass\n else:\n  done = True\n"
    index, node = parts(text)
    assert repeats_unchanged(index.tree.body[0], node, node.handlers[0])


@pytest.mark.parametrize(
    ("between", "unchanged"),
    [
        ("pass", True),
        ("continue", True),
        ("del x", True),
        ("'a note'", True),
        ("torch.cuda.empty_cache()", True),
        ("print('again')", True),
        ("shrink()", False),
        ("x", False),
        ("n_oom += 1", True),
        ("n_oom -= 1", False),
        ("number += 1", False),
        ("x += 1", False),
        ("failed = True", True),
        ("x = True", False),
        ("self.failed = True", False),
        ("failed = f()", False),
        ("failed = x = True", False),
        ("size = max(1, size // 2)", True),
        ("size = max(1, 2, size)", False),
        ("size = max(size // 2)", False),
        ("size = max(low, size // 2)", False),
        ("size = floor(1, size // 2)", False),
        ("if n:\n print(1)\nelse:\n print(2)", True),
        ("if n:\n shrink()", False),
        ("if n:\n print(1)\nelse:\n shrink()", False),
        ("x = next(batches)", False),
        ("print(sample())", False),
        ("break", False),
        ("return_ = x", False),
    ],
)
def test_what_leaves_the_next_try_as_it_was(between, unchanged):
    assert repeated(handler=between) is unchanged
    if between != "continue":
        assert repeated(before=between) is unchanged
        assert repeated(after=between) is unchanged


def test_what_is_counted_may_not_be_read_by_the_try():
    assert not repeated(tried="run(n_oom)\nbreak", handler="n_oom += 1")
    assert not repeated(tried="run(self.failed)\nbreak", handler="self.failed += 1")
    assert not repeated(tried="run(fails[0])\nbreak", handler="fails[0] += 1")
    assert repeated(tried="run(x)\nbreak", handler="fails[0] += 1")


def test_what_a_continue_skips_does_not_count():
    assert repeated(handler="continue", after="x = x[:1]")
    assert not repeated(handler="continue\npass", after="x = x[:1]")
    assert not repeated(handler="continue", before="x = x[:1]")
    assert repeated(handler="print(1)\ncontinue", after="x = x[:1]")


def test_a_try_further_inside_the_loop_is_not_repeated_alone():
    text = "while True:\n if x:\n  try:\n   run(x)\n  except Error:\n   pass\n"
    index, node = parts(text)
    assert not repeats_unchanged(index.tree.body[0], node, node.handlers[0])


def in_vain(*, loop="for n in range(3):", tried="return run(x)", handler="pass", after="", end=""):
    text = (
        f"def step():\n {loop}\n  try:\n   {tried}\n  except Error:\n   "
        + handler.replace("\n", "\n   ")
        + f"\n  {after or 'pass'}\n {end or 'pass'}\n"
    )
    index, node = parts(text)
    scope = index.tree.body[0]
    return attempts_in_vain(scope, scope.body[0], node, node.handlers[0])


@pytest.mark.parametrize(
    ("what", "vain"),
    [
        ({}, True),
        ({"loop": "for n in range(attempts):"}, True),
        ({"loop": "for n in range(1, 4):"}, True),
        ({"loop": "for n in range(2):"}, True),
        ({"loop": "for n in range(1):"}, False),
        ({"loop": "for n in (1, 2, 4):"}, False),
        ({"loop": "for n in xs:"}, False),
        ({"loop": "while n < 3:"}, False),
        ({"tried": "return run(x, n)"}, False),
        ({"tried": "return run(x, 2**n)"}, False),
        ({"tried": "return run(next(xs))"}, False),
        ({"handler": "if n == 2:\n raise"}, True),
        ({"handler": "if n == 2:\n print(n)\n raise"}, True),
        ({"handler": "if n == 2:\n shrink()\n raise"}, False),
        ({"handler": "if n == 2:\n return less(x)"}, False),
        ({"handler": "shrink()"}, False),
        ({"handler": "x = x[:1]"}, False),
        ({"after": "torch.cuda.empty_cache()"}, True),
        ({"after": "time.sleep(1)"}, False),
        ({"after": "gc.collect()"}, False),
        ({"end": "raise Error"}, True),
        ({"end": "run(x[:1])"}, False),
        ({"end": "log(x)"}, True),
    ],
)
def test_attempts_that_cannot_come_to_another_end(what, vain):
    assert in_vain(**what) is vain


def test_attempts_with_another_way_or_further_inside():
    text = "for n in range(3):\n try:\n  run(x)\n  break\n except Error:\n  pass\nelse:\n less(x)\n"
    index, node = parts(text)
    assert not attempts_in_vain(index.tree, index.tree.body[0], node, node.handlers[0])
    text = "for n in range(3):\n if x:\n  try:\n   run(x)\n   break\n  except Error:\n   pass\n"
    index, node = parts(text)
    assert not attempts_in_vain(index.tree, index.tree.body[0], node, node.handlers[0])
