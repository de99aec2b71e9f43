"""Handlers of out-of-memory errors around the step's backward: one flaw for each harm."""

from __future__ import annotations

import pytest
from auditor.rules.mem.mem011_oom_handling import OomHandlers

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, quiet, steps

INSIDE = """\
def step(batch):
    try:
        loss = model(batch)
        loss.backward()
    except torch.cuda.OutOfMemoryError:
        loss.backward()
    optimizer.step()
"""
AFTER = """\
def step(batch):
    failed = False
    optimizer.zero_grad()
    try:
        loss = model(batch)
        loss.backward()
    except torch.cuda.OutOfMemoryError:
        failed = True
    if failed:
        optimizer.zero_grad()
        model(batch[:1]).backward()
    optimizer.step()
"""
KEPT = """\
def step(batch):
    try:
        model(batch).backward()
    except torch.cuda.OutOfMemoryError as error:
        errors.append(error)
        return
    optimizer.step()
"""


def handlers(seen, text, line, **more):
    rows = [loud(0, lines=[0])]
    parts = {
        "steps": steps(3, "quiet", ooms=2) + steps(2, ooms=1),
        "enclosing": rows,
        "calls": [],
        **more,
    }
    return seen(text=text, sites=[line], **parts).get(OomHandlers)


@pytest.mark.parametrize(
    ("text", "line", "flaws"),
    [
        (INSIDE, 4, [(6, 5, ("same_graph",))]),
        (INSIDE.replace("        loss.backward()\n    opt", "        model(batch).backward()\n    opt"), 4, [(6, 5, ("inside",))]),
        (AFTER, 6, []),
        (AFTER.replace("model(batch[:1])", "loss"), 6, [(11, 7, ("same_graph",))]),
        (KEPT, 3, [(5, 4, ("kept",))]),
        (INSIDE, 7, []),  # a line outside of the try
    ],
)  # fmt: skip
def test_the_flaws_of_a_handler(seen, text, line, flaws):
    table = handlers(seen, text, line)
    assert [(each.site.line, each.handler.line, each.reasons) for each in table.flaws] == flaws
    assert {each.site.function for each in table.flaws} <= {"step"}
    assert table.errors == 2
    assert table.handlers == int(line != 7)


def test_a_handler_of_the_module_itself(seen):
    text = "".join(line[4:] + "\n" for line in KEPT.splitlines()[1:] if "return" not in line)
    (flaw,) = handlers(seen, text, 2).flaws
    assert (flaw.site.function, flaw.site.line, flaw.reasons) == ("<module>", 4, ("kept",))


def test_what_does_not_parse_or_was_not_recorded_has_no_handlers(seen):
    assert handlers(seen, "def step(:", 1).handlers == 0
    table = handlers(seen, KEPT, 3, inside="b", enclosing=[], steps=[quiet(0, us=1.0)])
    assert (table.handlers, table.errors, table.flaws) == (0, 0, ())


@pytest.mark.parametrize(("outcome", "reasons"), [("oom", ["died"]), ("raised", [])])
def test_the_second_error_in_a_handler_ended_the_run(seen, home, outcome, reasons):
    text = INSIDE.replace("        loss.backward()\n    opt", "        tried(batch)\n    opt")
    text = text.replace(
        "        loss = model(batch)\n        loss.backward()\n", "        tried(batch)\n"
    )
    frames = "".join(f'  File "{home}/trainer.py", line {n}, in step\n    x\n' for n in (3, 5))
    ended = {"error": {"traceback": f"Traceback:\n{frames}"}, "outcome": outcome}
    table = handlers(seen, text, 3, manifest=ended)
    (flaw,) = table.flaws
    assert flaw.site.line == 5
    assert [each for each in flaw.reasons if each == "died"] == reasons
    assert flaw.handler.line == 4


def test_an_error_raised_again_is_no_second_one(seen, home):
    text = KEPT.replace("        errors.append(error)\n        return", "        raise")
    frames = f'  File "{home}/trainer.py", line 5, in step\n    raise\n'
    ended = {"error": {"traceback": frames}, "outcome": "oom"}
    assert handlers(seen, text, 3, manifest=ended).flaws == ()


@pytest.mark.parametrize(("line", "known"), [(5, True), (3, False)])
def test_a_run_that_died_in_a_handler_before_anything_was_recorded(seen, home, line, known):
    text = INSIDE.replace("        loss.backward()\n    opt", "        tried(batch)\n    opt")
    text = text.replace(
        "        loss = model(batch)\n        loss.backward()\n", "        tried(batch)\n"
    )
    frame = f'  File "{home}/trainer.py", line {line}, in step\n'
    ended = {"error": {"traceback": frame}, "outcome": "oom"}
    evidence = seen(text=text, manifest=ended)
    if not known:
        with pytest.raises(NotLooked, match="ended early"):
            evidence.get(OomHandlers)
        return
    table = evidence.get(OomHandlers)
    assert [(each.site.line, "died" in each.reasons) for each in table.flaws] == [(5, True)]
    assert table.calls is None
    assert (table.handlers, table.errors) == (1, 2)  # the error, and that of the handler
