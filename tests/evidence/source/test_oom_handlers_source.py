"""Handlers of out-of-memory errors as the source has them, form by form."""

from __future__ import annotations

import textwrap

import pytest
from auditor.rules.mem.mem011_oom_handling import functions, guards

from auditor.syntax.index import index_of


def guard(text, *lines):
    """The one guard around these lines of a ``def step``, whose body the text is."""
    index = index_of("def step():\n" + textwrap.indent(textwrap.dedent(text), "    "))
    (found,) = guards(index, lines, functions([index]))
    return found


def retries(text, *lines):
    return [
        (each.node.lineno, each.inside, each.same_graph) for each in guard(text, *lines).retries
    ]


def handled(
    body, before="optimizer.zero_grad()", after="optimizer.step()", error="OutOfMemoryError"
):
    return (
        f"{before}\ntry:\n    loss = model(x)\n    loss.backward()\n"
        f"except torch.{error} as error:\n{textwrap.indent(body, '    ')}\n{after}\n"
    )


BACKWARD = 5
"""The line of the backward in :func:`handled`."""


@pytest.mark.parametrize(
    ("clause", "caught"),
    [
        ("except torch.cuda.OutOfMemoryError:\n        pass", True),
        ("except (ValueError, torch.OutOfMemoryError):\n        pass", True),
        ("except RuntimeError as e:\n        if 'out of memory' in str(e): pass", True),
        ("except RuntimeError as e:\n        if 'CUDA Out Of Memory' in str(e): pass", True),
        ("except RuntimeError:\n        print('maybe it ran out of memory there')", False),
        ("except RuntimeError:\n        print('it ran out of memory (30)....')", True),
        ("except RuntimeError:\n        print('it ran out of memory (30).....')", False),
        ("except ValueError:\n        pass", False),
        ("except:\n        pass", False),
    ],
)
def test_which_handlers_are_meant(clause, caught):
    index = index_of(f"def step():\n    try:\n        loss.backward()\n    {clause}\n")
    assert bool(list(guards(index, [3], {}))) is caught


@pytest.mark.parametrize(
    ("line", "around"), [(2, False), (3, True), (4, True), (5, False), (6, True), (7, False)]
)
def test_lines_of_the_try_and_of_its_handler_count(line, around):
    text = "def step():\n    try:\n        a.backward()\n        b()\n    except OutOfMemoryError:\n        c()\n    d()\n"
    found = list(guards(index_of(text), [line, 99], {}))
    assert [each.lines for each in found] == ([(line,)] if around else [])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("pass", []),
        ("loss.backward()", [(7, True, True)]),
        ("model(x).backward()", [(7, True, False)]),
        ("scaler.scale(loss).backward()", [(7, True, True)]),
        ("loss = model(x)\nloss.backward()", [(8, True, False)]),
        ("optimizer.zero_grad()\nloss.backward()", [(8, True, True)]),
        ("p.grad = None\nmodel(x).backward()", [(8, True, False)]),
        ("del p.grad\nmodel(x).backward()", [(8, True, False)]),
        ("p.grad.zero_()\nmodel(x).backward()", [(8, True, False)]),
        ("p.zero_()\nmodel(x).backward()", [(8, True, False)]),
        ("x.backward(); y.backward()", [(7, True, True)]),
        ("self.manual_backward(loss)", [(7, True, True)]),
        ("self.manual_backward(model(x))", [(7, True, False)]),
        ("model(x).backward()\noptimizer.zero_grad()", [(7, True, False)]),
    ],
)
def test_what_is_tried_again_inside_the_handler(body, found):
    assert retries(handled(body), BACKWARD) == found


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("if failed:\n    model(x).backward()", [(9, False, False)]),
        ("if failed:\n    pass\nelse:\n    loss.backward()", [(11, False, True)]),
        (
            "while failed:\n    optimizer.zero_grad()\n    loss.backward()",
            [(10, False, True)],
        ),
        ("if other:\n    loss.backward()", []),
        ("loss.backward()", []),
    ],
)
def test_what_is_tried_again_behind_it(after, found):
    assert retries(handled("failed = True", after=after), BACKWARD) == found


def test_a_call_that_failed_further_inside_is_tried_again():
    text = """\
    try:
        train(x)
    except OutOfMemoryError:
        train(y)
    def other():
        pass
    """
    assert retries(text, 3) == [(5, True, False)]
    assert retries(textwrap.dedent(text).replace("train(y)", "log(y)"), 3) == []


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("errors.append(error)", 7),
        ("self.error = error", 7),
        ("errors.append(str(error))", None),
        ("last = error.args", None),
        ("print(error)", None),
        ("errors.setdefault(0, error)", 7),
        ("errors.append((step, error))", 7),
        ("errors.append([{1: error}])", 7),
        ("errors += [error]", 7),
        ("self.error: Exception = error", 7),
        ("self.last = step, error", 7),
        ("errors.append((step, str(error)))", None),
        ("errors.append({error: 1})", None),
        ("error.__traceback__ = None\nerrors.append(error)", None),
        ("other.__traceback__ = None\nerrors.append(error)", 8),
        ("error.with_traceback(None)\nerrors.append(error)", None),
        ("traceback.clear_frames(error)\nself.error = error", None),
        ("if x:\n    errors.add(error)", 8),
    ],
)
def test_where_the_exception_itself_is_kept(body, line):
    kept = guard(handled(body), BACKWARD).kept
    assert (kept.lineno if kept is not None else None) == line


@pytest.mark.parametrize(
    ("test", "body", "line"),
    [
        ("if 'out of memory' in str(error):\n    loss.backward()\nelse:\n    raise", "memory", 8),
        ("if 'out of memory' not in str(error):\n    raise\nloss.backward()", "memory", 9),
        (
            "if not isinstance(error, OutOfMemoryError):\n    loss.backward()\nprint(1)",
            "other",
            None,
        ),
        ("if 'out of memory' in str(error):\n    return\nloss.backward()", "other", None),
        ("if 'illegal' in str(error):\n    loss.backward()", "unknown", 8),
    ],
)
def test_only_what_runs_when_memory_ran_out_counts(test, body, line):
    text = handled(test).replace("torch.OutOfMemoryError as", "(RuntimeError, OutOfMemoryError) as")
    found = guard(text, BACKWARD).retries
    assert ([each.node.lineno for each in found] or [None]) == [line], body


def test_functions_by_name_without_those_that_several_have():
    indices = list(map(index_of, ["def a(): pass\nasync def b(): pass\n", "def b(): pass\n"]))
    assert functions(indices).keys() == {"a"}
    assert functions(indices[:1]).keys() == {"a", "b"}
