"""Handlers of out-of-memory errors around the step's backward: one flaw for each harm."""

import pytest
from auditor.rules.mem.mem011_oom_handling import OomHandlers

from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, steps

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
        (INSIDE, 4, [(6, 5, "same_graph")]),
        (AFTER, 6, []),
        (KEPT, 3, [(5, 4, "kept")]),
        (INSIDE, 7, []),  # a line outside of the try
    ],
)
def test_the_flaws_of_a_handler(seen, text, line, flaws):
    table = handlers(seen, text, line)
    assert [(each.site.line, each.handler.line, each.reason) for each in table.flaws] == flaws
    assert {each.site.function for each in table.flaws} <= {"step"}
    assert table.errors == 2


@pytest.mark.parametrize("outcome", ["oom", "raised"])
def test_a_run_that_died_in_a_handler_before_anything_was_recorded(seen, home, outcome):
    text = INSIDE.replace(
        "        loss = model(batch)\n        loss.backward()\n", "        tried(batch)\n"
    )
    text = text.replace("        loss.backward()\n", "        tried(batch)\n")
    frames = "".join(f'  File "{home}/trainer.py", line {n}, in step\n    x\n' for n in (3, 5))
    evidence = seen(text=text, manifest={"error": {"traceback": frames}, "outcome": outcome})
    if outcome != "oom":
        with pytest.raises(NotLooked):
            evidence.get(OomHandlers)
        return
    table = evidence.get(OomHandlers)
    assert [(each.site.line, each.reason) for each in table.flaws] == [(5, "inside")]
    assert table.errors == 1
