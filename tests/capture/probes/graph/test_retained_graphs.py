import sys
import textwrap
import types
from pathlib import Path

import pytest

from auditor.capture.instruments import object_search
from auditor.capture.instruments.live_objects import instances_of_user
from auditor.capture.instruments.object_search import frame_locals
from auditor.capture.probes.graph.backward import BackwardProbe
from auditor.capture.probes.graph.retained_graphs import RetainedGraphsProbe
from tests.capture.drive import Drive, framework, line_of, load

HEAD = """
import collections, dataclasses, functools
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(4, 8)
def train():
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss
"""
STEPS = 5


def program(tmp_path, source):
    return load(tmp_path, HEAD.lstrip("\n") + textwrap.dedent(source))


def record(tmp_path, source, target="step"):
    """The rows of five steps by root."""
    user = program(tmp_path, source)
    with Drive(tmp_path, BackwardProbe, RetainedGraphsProbe) as drive:
        found = getattr(user, target)
        drive.run("loud", found, steps=STEPS)
        assert drive.warnings == []
        roots: dict[str, list] = {}
        for row in drive.rows("graphs"):
            roots.setdefault(row["root"], []).append(row)
        return user, roots


def the_leak(user, roots) -> dict:
    """The only root that carries graphs; it grew on every step, and BAD marks its line."""
    leaking = {root: rows for root, rows in roots.items() if any(row["carried"] for row in rows)}
    assert len(leaking) == 1, leaking.keys()
    ((root, rows),) = leaking.items()
    assert [row["step"] for row in rows] == list(range(STEPS))
    nodes = [row["nodes"] for row in rows]
    assert all(later > earlier for earlier, later in zip(nodes, nodes[1:], strict=False)), nodes
    assert [row["oldest"] for row in rows] == list(range(STEPS))
    assert rows[-1]["line"] == line_of(user, "BAD") and rows[-1]["file"] == user.__file__
    assert not any(row["walked"] for row in rows)
    name = Path(user.__file__).name
    assert root == f"{name}:{rows[0]['function']}:{rows[0]['name']}{rows[0]['path']}"
    return {
        "name": rows[0]["name"] + rows[0]["path"],
        "function": rows[0]["function"],
        "tensors": [row["tensors"] for row in rows],
    }


GROWING = list(range(1, STEPS + 1))

LEAKS = {
    "generator's local": (
        """
        def step():
            total = 0
            while True:
                loss = train()
                total += loss  # BAD
                yield loss.item()
        """,
        {"name": "total", "function": "step", "tensors": [1] * STEPS},
    ),
    "partial": (
        """
        def log(losses, scale):
            losses.append(train() * scale)  # BAD
        step = functools.partial(log, [], scale=2)
        """,
        None,
    ),
    "attribute of a function": (
        """
        def step():
            step.losses.append(train())  # BAD
        step.losses = []
        """,
        {"name": "step.losses[*]", "function": "step", "tensors": GROWING},
    ),
    "list of a class": (
        """
        class Meter:
            values = []
            def update(self, value):
                Meter.values.append(value)  # BAD
        meter = Meter()
        def step():
            meter.update(train())
        """,
        {"name": "Meter.values[*]", "function": "Meter.update", "tensors": GROWING},
    ),
    "slots": (
        """
        @dataclasses.dataclass(slots=True)
        class State:
            total: object = 0
        state = State()
        def step():
            state.total = state.total + train()  # BAD
        """,
        {"name": "state.total", "function": "step", "tensors": [1] * STEPS},
    ),
    "buffer of a module": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(8, 1)
                self.register_buffer('mean', torch.zeros(()))
            def forward(self, x):
                out = self.inner(x)
                self.mean = 0.9 * self.mean + 0.1 * out.mean()  # BAD
                return out
        net = nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(nn.Sequential(Net())))))
        def step():
            net(x)
        """,
        {"name": "self.mean", "function": "Net.forward", "tensors": [1] * STEPS},
    ),
    "tuple unpacked": (
        """
        total, count = 0, 0
        def step():
            global total, count
            total, count = total + train(), count + 1  # BAD
        """,
        {"name": "total", "function": "step", "tensors": [1] * STEPS},
    ),
}


@pytest.mark.parametrize("case", LEAKS)
def test_a_growing_holder_and_the_line_that_fills_it(tmp_path, case):
    source, expected = LEAKS[case]
    user, roots = record(tmp_path, source)
    if expected is None:  # the list has no name of its own: no line may be made up
        ((root, rows),) = roots.items()
        assert [row["tensors"] for row in rows] == GROWING and rows[0]["line"] is None
    else:
        assert the_leak(user, roots) == expected


def script(tmp_path, source, steps=STEPS):
    """The program, and the rows of a ``main`` that is still running."""
    user = program(tmp_path, source)
    with Drive(tmp_path, BackwardProbe, RetainedGraphsProbe) as drive:
        with drive.running("loud", types.ModuleType("script")):
            user.main(steps, drive.boundary)
        return user, drive.rows("graphs")


def test_a_script_that_is_still_running(tmp_path):
    source = """
    def main(n, tick):
        total_loss, losses = 0., []
        for i in range(n):
            loss = train()
            total_loss += loss  # total
            losses.append(loss)  # list
            tick()
    """
    user, rows = script(tmp_path, source)
    last = {row["name"]: (row["carried"], row["line"]) for row in rows if row["step"] == STEPS - 1}
    assert last == {
        "total_loss": (1, line_of(user, "total")),
        "losses": (STEPS - 1, line_of(user, "list")),
    }


def test_in_a_running_script_the_loss_of_the_step_does_not_grow(tmp_path):
    source = """
    def main(n, tick):
        for i in range(n):
            loss = train()  # loss
            tick()
    """
    user, rows = script(tmp_path, source)
    assert {(row["name"], row["line"], row["carried"], row["nodes"]) for row in rows} == {
        ("loss", line_of(user, "loss"), 0, rows[0]["nodes"])
    }


def test_a_recurrent_state_is_walked_and_its_loss_is_not_to_blame(tmp_path):
    source = """
    cell = nn.GRUCell(8, 8)
    h = torch.zeros(4, 8)
    loss = None
    def step():
        global h, loss
        h = cell(x, h)  # state
        loss = h.pow(2).mean()
        loss.backward(retain_graph=True)
    """
    user, roots = record(tmp_path, source)
    (h,) = [rows for root, rows in roots.items() if root.endswith(":h")]
    (loss,) = [rows for root, rows in roots.items() if root.endswith(":loss")]
    assert h[-1]["line"] == line_of(user, "state") and h[-1]["oldest"] == STEPS - 1
    assert [row["walked"] for row in h] == [False, True, True, True, True]
    assert len({row["nodes"] for row in loss}) == 1 and not any(row["carried"] for row in loss)


def test_held_bytes_of_a_custom_function_are_what_it_saved_and_what_it_keeps_aside(tmp_path):
    source = """
    class Masked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.mask = x > 0
            return x * ctx.mask
        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.mask
    held = []
    weight = torch.ones(4, 8, requires_grad=True)
    def step(): held.append(Masked.apply(weight + 1).sum())
    """
    _, roots = record(tmp_path, source)
    ((_, rows),) = roots.items()
    assert [row["held_bytes"] for row in rows] == [n * (4 * 8 * 4 + 4 * 8) for n in range(STEPS)]


def test_after_a_backward_nothing_is_held_but_nodes(tmp_path):
    _, roots = record(tmp_path, "losses = []\ndef step(): losses.append(train())\n")
    ((_, rows),) = roots.items()
    assert [row["held_bytes"] for row in rows] == [0] * STEPS and rows[-1]["nodes"] > 0


def test_a_bounded_queue_carries_but_does_not_grow(tmp_path):
    _, roots = record(
        tmp_path, "recent = collections.deque(maxlen=2)\ndef step(): recent.append(train())\n"
    )
    ((_, rows),) = roots.items()
    assert [(row["tensors"], row["carried"], row["oldest"]) for row in rows] == [(1, 0, 0)] + [
        (2, 1, 1)
    ] * (STEPS - 1)


def test_initialisations_are_not_the_line(tmp_path):
    source = """
    def main(n, tick):
        h = torch.zeros(4, 8)
        for i in range(n):
            if i == 100:
                h = h.detach()
            h = model[0](h)  # BAD
            tick()
    """
    user, rows = script(tmp_path, source, steps=3)
    assert {row["line"] for row in rows} == {line_of(user, "BAD")}


def test_reading_locals_leaves_the_users_own_snapshot_alone(tmp_path):
    source = """
    def main(tick, lr=0.1):
        settings = locals()
        loss = train()
        tick()
        return settings
    """
    user = program(tmp_path, source)
    with Drive(tmp_path, RetainedGraphsProbe) as drive, drive.running("loud"):
        assert user.main(drive.boundary).keys() == {"tick", "lr"}


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="each reader gets a dictionary of its own")
@pytest.mark.parametrize(
    ("statement", "seen"),
    [
        ("model.eval()", True),
        ("torch.stack([x, x])", True),
        ("eval('1')", False),
        ("settings = vars()", False),
        ("import inspect; inspect.stack(0)", False),
        ("frames.stack(0)", False),
        ("sys._getframe()", False),
    ],
)
def test_a_function_is_looked_into_unless_it_may_read_its_own_snapshot(tmp_path, statement, seen):
    source = f"""
    import inspect as frames, sys
    def holds(read):
        thing = 1
        {statement}
        return read()
    """
    found = program(tmp_path, source).holds(lambda: set(frame_locals(sys._getframe(1))))
    assert ("thing" in found) == seen


def test_the_variables_of_a_module_stay_as_they_are(tmp_path):
    seen: list[dict[str, object]] = []
    module = {"read": lambda: seen.append(frame_locals(sys._getframe(1))), "thing": 1}
    exec("read()\nleft = thing", module)
    assert seen[0]["thing"] == 1 and module["left"] == 1


def test_locals_are_read_and_nothing_is_left(tmp_path):
    source = """
    from sys import getrefcount
    def holds(read):
        thing = object()
        alone = getrefcount(thing)
        return read(), getrefcount(thing) - alone, thing
    """
    seen, more, thing = program(tmp_path, source).holds(lambda: set(frame_locals(sys._getframe(1))))
    assert seen == {"read", "thing", "alone"} and more == 0


def test_no_code_of_the_users_runs_in_a_census(tmp_path):
    source = """
    class Trap(dict):
        def __getattr__(self, name): raise AssertionError(name)
        def __iter__(self): raise AssertionError
        def values(self): raise AssertionError
        def __len__(self): raise AssertionError
        def __eq__(self, other): raise AssertionError
        __hash__ = None
    class Lazy:
        __slots__ = ("never",)
        def __getattr__(self, name): raise AssertionError(name)
        @property
        def costly(self): raise AssertionError
    held = [Trap(a=1), Lazy()]
    trap = Trap(loss=train())
    def step(): pass
    """
    _, roots = record(tmp_path, source)
    assert [rows[-1]["tensors"] for rows in roots.values()] == [1]


def test_large_dull_containers_are_not_read_every_time_but_again(tmp_path):
    source = """
    table = [[i] for i in range(5000)]
    i = 0
    def step():
        global i
        i += 1
        if i == 3: table[-1] = train()
    """
    user = program(tmp_path, source)
    with Drive(tmp_path, RetainedGraphsProbe) as drive:
        drive.run("loud", user.step, steps=12)
        assert {row["root"].rpartition(":")[2] for row in drive.rows("graphs")} == {"table[*]"}


LOOP = """
class Loop:
    def __init__(self, module, callbacks=()):
        self._parts = {"state": [[[[[module]]]]], "callbacks": [[[[list(callbacks)]]]]}  # deeper than anybody looks

    @property
    def parts(self):
        return self._parts["state"][0][0][0][0][0], self._parts["callbacks"][0][0][0][0]

    def step(self):
        module, callbacks = self.parts
        loss = module.training_step()
        loss.backward()
        for callback in callbacks:
            callback.on_step_end(loss)
"""

PARTS = """
import framework

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.outputs = nn.Linear(8, 1), []

    def training_step(self):
        loss = self.layer(x).mean()
        self.outputs.append({module}
        return loss

class Keeper:
    def __init__(self):
        self.seen = []

    def on_step_end(self, loss):
        self.seen.append({callback}

def steps():
    loop = framework.Loop(Net(), [Keeper()])
    def step():
        loop.step()
    return step

step = steps()
"""


@pytest.mark.parametrize(
    ("module", "callback"),
    [("loss)  # BAD", "1)"), ("1)", "loss)  # BAD")],
    ids=["module", "callback"],
)
def test_what_only_a_framework_holds_is_found(tmp_path, monkeypatch, module, callback):
    monkeypatch.setattr(
        object_search, "VISITS", 10 * object_search.VISITS
    )  # all test modules of the session are the user's here
    framework(tmp_path, LOOP)
    the_leak(*record(tmp_path, PARTS.format(module=module, callback=callback)))


def test_objects_of_the_users_classes_are_not_kept_and_data_is_no_part_of_the_program(tmp_path):
    source = """
    class Part: pass
    class Sample: pass
    class Sealed: __slots__ = ()
    class Mistake(Exception): pass
    parts, samples = [Part() for _ in range(8)], [Sample() for _ in range(9)]
    others = [Sealed(), Mistake(), Part]
    """
    user = program(tmp_path, source)
    found = instances_of_user([user])
    assert {id(reference()) for reference in found} == {id(part) for part in user.parts}
    user.parts.clear()
    assert [reference() for reference in found] == [None] * 8
