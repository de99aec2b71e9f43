"""Loops that call a module piece by piece: which loop, and how much of the step."""

from auditor.rules.kern.loops import ModuleLoops

TEXT = """def value(x):
    return net(x)
def loss(states):
    for x in states:
        total += value(x)
    return total
def train():
    for batch in loader:
        outs = list(map(net, batch))
        learn(outs)
def learn(outs):
    sum(outs).backward()
for epoch in range(3):
    train()
"""


def row(step, lines=(3, 2, 0), **more):
    facts = {"module": "Net", "recurrent": False, "n": 10, "elements": 4, "us": 20.0}
    return {
        "pass": "numbers",
        "step": step,
        "lines": list(lines),
        **facts,
        "step_us": 100.0,
        **more,
    }


def loops(seen, rows, steps=3):
    passes = {"passes": [{"name": "numbers", "steps": steps}]}
    return seen(TEXT, sites=[2, 9, 5, 14], turns=rows, manifest=passes).get(ModuleLoops)


def test_the_innermost_line_in_a_loop_is_the_place(seen):
    table = loops(seen, [row(step) for step in range(3)])
    (each,) = table.loops
    assert (each.site.line, each.head.line, each.head.text) == (5, 4, "for x in states:")
    assert (each.turns, each.share, each.steps, each.same) == (10, 0.2, 3, True)


def test_of_one_loop_the_outermost_module_stands_for_all(seen):
    rows = [row(0, (2, 0), module="Inner"), row(0, (2,), module="Outer")]
    (each,) = loops(seen, rows, 1).loops
    assert each.module == "Outer"


def test_one_step_that_was_held_up_says_nothing(seen):
    rows = [row(0), row(1, step_us=100_000.0), row(2, us=40.0)]
    (each,) = loops(seen, rows).loops
    assert each.share == 0.2


def test_a_step_without_a_time_has_no_share(seen):
    (each,) = loops(seen, [row(0, step_us=0.0)], 1).loops
    assert each.share == 0.0
