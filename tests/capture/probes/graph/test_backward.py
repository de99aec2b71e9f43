import textwrap

import pytest
import torch
from torch.autograd import graph

from auditor.capture.instruments import autograd_graph
from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, saved_bytes, walk
from auditor.capture.probes.graph.backward import BackwardProbe
from tests.capture.drive import Drive, framework, line_of, load

HEAD = """
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
head = nn.Linear(1, 1)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=1e-3)
x = torch.randn(4, 8)
"""


def program(tmp_path, source):
    return load(tmp_path, HEAD.lstrip("\n") + textwrap.dedent(source))


def record(tmp_path, source, steps=3):
    """Flags by line of every step's backward, and which line's kept graph which one walked."""
    user = program(tmp_path, source)
    with Drive(tmp_path, BackwardProbe) as drive:
        drive.run("loud", user.step, steps=steps)
        assert drive.warnings == []
        return user, drive.rows("backward"), drive.rows("reused")


def reuse(rows) -> set[int]:
    return {row["at_line"] for row in rows}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(tmp_path, reentrant):
    source = f"""
    from torch.utils.checkpoint import checkpoint
    runs = 0
    def block(h):
        global runs
        runs += 1
        return model(h)
    def step():
        out = checkpoint(block, x.clone().requires_grad_(), use_reentrant={reentrant})
        head(out).mean().backward(retain_graph=True)  # at
    """
    user, rows, reused = record(tmp_path, source)
    assert [(row["at_line"], row["n"], row["retain"]) for row in rows] == [
        (line_of(user, "at"), 1, True)
    ] * 3
    assert user.runs == 6, (
        "one forward and one recomputation for each step: weighing must not cause another"
    )


FRAMEWORK = """
def backward(loss, *args, **kwargs):
    loss.backward(*args, **kwargs)

def backward_twice(loss, scale=1.0):
    loss.backward(retain_graph=True)
    loss.backward()
"""


def test_a_framework_hands_on_what_the_line_asks_for(tmp_path):
    framework(tmp_path, FRAMEWORK)
    source = """
    import framework

    def step():
        framework.backward(model(x).mean(), retain_graph=True)  # asked
        framework.backward(model(x).mean())  # plain
        framework.backward_twice(model(x).mean(), scale=2.0)  # theirs
    """
    user, rows, _ = record(tmp_path, source)
    asked = {row["at_line"] for row in rows if row["retain"]}
    assert asked == {line_of(user, "asked")}
    assert {row["at_line"] for row in rows} == {
        line_of(user, mark) for mark in ("asked", "plain", "theirs")
    }


def test_a_backward_inside_a_backward_is_part_of_it(tmp_path):
    source = """
    class Solve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            with torch.enable_grad():
                ctx.inner = (v.detach().requires_grad_() ** 2).sum()
            return v * 1
        @staticmethod
        def backward(ctx, g):
            ctx.inner.backward(retain_graph=True)
            return g
    def step():
        Solve.apply(model(x)).mean().backward()  # at
    """
    user, rows, _ = record(tmp_path, source)
    assert [(row["at_line"], row["n"], row["retain"]) for row in rows] == [
        (line_of(user, "at"), 1, False)
    ] * 3


def test_where_a_walk_is_cut_off_it_counts_as_reused(tmp_path, monkeypatch):
    monkeypatch.setattr(autograd_graph, "NODE_CAP", 3)
    source = """
    kept = []
    def step():
        loss = model(x).mean()
        loss.backward(retain_graph=True)  # kept
        kept.append(loss)
        model(x).mean().backward()  # by
    """
    user, _, reused = record(tmp_path, source, steps=1)
    assert reuse(reused) == {line_of(user, "kept")}


def test_a_backward_that_raises_raises_the_same_and_counts(tmp_path):
    source = """
    loss = model(x).mean()
    loss.backward()
    def step():
        loss.backward(retain_graph=True)
    """
    user = program(tmp_path, source)
    with Drive(tmp_path, BackwardProbe) as drive:
        with drive.running("loud"):
            with pytest.raises(RuntimeError, match="backward through the graph a second time"):
                drive.step(user.step)
            drive.boundary()
            assert [row["n"] for row in drive.rows("backward")] == [1]
        assert drive.rows("reused") == []


def test_saved_bytes_unpacks_nothing_and_counts_each_storage_once():
    weight = torch.nn.Parameter(torch.ones(10, 10))
    data = torch.ones(1000, 10)
    hidden = (data[:5] @ weight).exp()
    unpacked = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
        out = hidden.sin() + hidden.cos()
    # exp keeps its result (5x10), sin and cos the same; the slice of the data weighs what it is,
    # not what it is cut from.
    assert saved_bytes(walk([out.grad_fn])) == 4 * (50 + 50) and unpacked == []
    out.sum().backward()
    assert saved_bytes(walk([out.grad_fn])) == 0


def test_a_watcher_that_fails_leaves_the_step_alone():
    class Bad:
        lost = None

        def backward_begins(self, call) -> None:
            raise KeyError("ours")

        def backward_ends(self, call) -> None:
            raise KeyError("ours")

        def backward_lost(self, error) -> None:
            self.lost = error

    bad, code = Bad(), graph._engine_run_backward.__code__
    BACKWARD_HOOKS.add(bad)
    torch.ones(1, requires_grad=True).sum().backward()
    BACKWARD_HOOKS.remove(bad)
    assert isinstance(bad.lost, KeyError) and graph._engine_run_backward.__code__ is code


def test_without_torchs_funnel_the_public_entries_are_watched(tmp_path, monkeypatch):
    monkeypatch.delattr(graph, "_engine_run_backward")
    source = """
    def step():
        h = model(x)
        loss = h.mean()
        loss.backward(retain_graph=True)  # kept
        torch.autograd.grad(loss, [model[2].weight], None, True)  # grad
        torch.autograd.backward([loss])  # last
    """
    user, rows, reused = record(tmp_path, source, steps=1)
    kept, grad, last = (line_of(user, mark) for mark in ("kept", "grad", "last"))
    wanted = {kept: (1, True), grad: (1, True), last: (1, False)}
    assert {row["at_line"]: (row["n"], row["retain"]) for row in rows} == wanted
    assert reuse(reused) == {kept, grad}
