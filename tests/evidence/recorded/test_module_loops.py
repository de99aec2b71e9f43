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


def test_one_step_that_was_held_up_says_nothing(seen):
    rows = [row(0), row(1, step_us=100_000.0), row(2, us=40.0)]
    (each,) = loops(seen, rows).loops
    assert each.share == 0.2
