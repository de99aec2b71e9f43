"""Handlers of out-of-memory errors as the source has them, form by form."""

import textwrap

import pytest
from auditor.rules.mem.mem011_oom_handling import flaws_in, functions

from auditor.syntax.index import index_of


def harms(text, *lines):
    """Lines and reasons around these lines of a ``def step``, whose body the text is."""
    index = index_of("def step():\n" + textwrap.indent(textwrap.dedent(text), "    "))
    found = flaws_in(index, lines, functions([index]))
    return [(each.node.lineno, each.reason) for each in found]


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
        ("except torch.cuda.OutOfMemoryError:\n        loss.backward()", True),
        ("except (ValueError, torch.OutOfMemoryError):\n        loss.backward()", True),
        ("except RuntimeError as e:\n        if 'out of memory' in str(e): loss.backward()", True),
        ("except RuntimeError as e:\n        if 'CUDA Out Of Memory' in str(e): loss.backward()", True),
        ("except RuntimeError:\n        print('maybe it ran out of memory there'), loss.backward()", False),
        ("except RuntimeError:\n        print('it ran out of memory (30)....'), loss.backward()", True),
        ("except RuntimeError:\n        print('it ran out of memory (30).....'), loss.backward()", False),
        ("except ValueError:\n        loss.backward()", False),
        ("except:\n        loss.backward()", False),
    ],
)  # fmt: skip
def test_which_handlers_are_meant(clause, caught):
    index = index_of(f"def step():\n    try:\n        loss.backward()\n    {clause}\n")
    assert bool(list(flaws_in(index, [3], {}))) is caught


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("pass", []),
        ("loss.backward()", [(7, "same_graph")]),
        ("model(x).backward()", [(7, "inside")]),
        ("scaler.scale(loss).backward()", [(7, "same_graph")]),
        ("loss = model(x)\nloss.backward()", [(8, "inside")]),
        ("x.backward(); y.backward()", [(7, "same_graph")]),
        ("self.manual_backward(loss)", [(7, "same_graph")]),
        ("self.manual_backward(model(x))", [(7, "inside")]),
    ],
)
def test_what_is_tried_again_inside_the_handler(body, found):
    assert harms(handled(body), BACKWARD) == found


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ("if failed:\n    model(x).backward()", []),
        ("if failed:\n    pass\nelse:\n    loss.backward()", [(11, "same_graph")]),
        ("while failed:\n    optimizer.zero_grad()\n    loss.backward()", [(10, "same_graph")]),
        ("if other:\n    loss.backward()", []),
        ("loss.backward()", []),
    ],
)
def test_what_is_tried_again_behind_it(after, found):
    assert harms(handled("failed = True", after=after), BACKWARD) == found


def test_a_call_that_failed_further_inside_is_tried_again():
    text = """\
    try:
        train(x)
    except OutOfMemoryError:
        train(y)
    def other():
        pass
    """
    assert harms(text, 3) == [(5, "inside")]
    assert harms(textwrap.dedent(text).replace("train(y)", "log(y)"), 3) == []


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
    assert harms(handled(body), BACKWARD) == ([] if line is None else [(line, "kept")])
