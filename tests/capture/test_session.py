"""The session around its probes: one that fails is stopped and told, and the others go on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from auditor.capture import trace
from auditor.capture.autograd_graph import DOOR, Backward
from auditor.capture.frames import Frames
from auditor.capture.probe import Context, Probe
from auditor.capture.session import Session
from auditor.plan import Plan
from auditor.recording import RecordingWriter

TOO_MUCH = "the trace holds 2 of 3: more would take too much memory"


class Watching(Probe):
    """Counts what it is asked."""

    name = "watching"
    parts = ("looks",)
    passes = frozenset({"quiet"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.asked: list[str] = []

    def start(self) -> None:
        self.asked.append("start")

    def step_begin(self) -> None:
        self.asked.append("begin")

    def step_end(self) -> None:
        self.asked.append("end")

    def stop(self) -> None:
        self.asked.append("stop")


class Failing(Watching):
    """Fails when it is asked for the first time, where ``when`` says."""

    name = "failing"
    parts = ("faults",)
    when = "start"

    def start(self) -> None:
        super().start()
        self._fail("start")

    def step_begin(self) -> None:
        super().step_begin()
        self._fail("begin")

    def step_end(self) -> None:
        super().step_end()
        self._fail("end")

    def _fail(self, now: str) -> None:
        if now == self.when:
            raise OSError("gone")


@pytest.mark.parametrize(
    ("when", "asked"),
    [("start", ["start", "stop"]), ("begin", ["start", "begin", "stop"]), ("end", ["start", "begin", "end", "stop"])],
)
def test_a_probe_that_fails_is_stopped_and_the_others_go_on(tmp_path: Path, when: str, asked: list[str]) -> None:
    writer, warnings = RecordingWriter(tmp_path), []
    context = Context(writer, Frames(writer), device="cpu", warn=warnings.append)
    failing, watching = Failing(context), Watching(context)
    failing.when = when
    plan = Plan("test:step", (), steps=2, warmup=0, device="cpu", folder=str(tmp_path), parts=(), trace_steps=0)
    session = Session(plan, context, [failing, watching], lambda name, done, total: None)
    session.install()
    while not session.done:
        session.begin()
        session.end()
    session.uninstall()
    assert failing.asked == asked
    assert watching.asked == ["start", *["begin", "end"] * 2, "stop"]
    assert session.failed == {"failing": {"status": "failed", "error": "OSError: gone", "parts": ["faults"]}}
    assert len(warnings) == 1


def test_a_probe_that_fails_inside_a_step_is_stopped_at_its_end(tmp_path: Path) -> None:
    class Inside(Failing):
        when = "never"

        def start(self) -> None:
            super().start()
            DOOR.add(self)

        def stop(self) -> None:
            DOOR.remove(self)
            super().stop()

        def backward_begins(self, call: Backward) -> None:
            raise OSError("gone")

    writer = RecordingWriter(tmp_path)
    context = Context(writer, Frames(writer), device="cpu")
    plan = Plan("test:step", (), steps=2, warmup=0, device="cpu", folder=str(tmp_path), parts=(), trace_steps=0)
    session = Session(plan, context, [probe := Inside(context)], lambda name, done, total: None)
    weight = torch.ones(1, requires_grad=True)
    while not session.done:
        session.begin()
        (2 * weight).backward()
        session.end()
    assert probe.asked == ["start", "begin", "stop"]
    assert weight.grad is not None
    assert float(weight.grad) == 4.0
    assert session.failed["failing"]["error"] == "OSError: gone"


@pytest.mark.parametrize(("per_step", "traced"), [(1, 3), (trace.FULL_NODES, 2)])
def test_a_trace_of_long_steps_ends_before_it_takes_too_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, per_step: int, traced: int
) -> None:
    nodes = iter(range(0, 100 * per_step, per_step))
    monkeypatch.setattr(trace, "_nodes", lambda: next(nodes))
    writer, warnings, passes = RecordingWriter(tmp_path), [], Counter[str]()
    context = Context(writer, Frames(writer), device="cpu", warn=warnings.append)
    plan = Plan("test:step", (), steps=2, warmup=0, device="cpu", folder=str(tmp_path), parts=(), trace_steps=3)
    session = Session(plan, context, [], lambda name, done, total: None)
    while not session.done:
        session.begin()
        passes[context.pass_name] += 1
        session.end()
    assert passes == {"quiet": 2, "trace": traced}
    assert (tmp_path / trace.TRACE).is_file()
    assert [warning.partition(" that ")[2] for warning in warnings] == [TOO_MUCH] * (traced < 3)


def test_autograd_nodes_are_counted_where_torch_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    before = trace._nodes()
    (torch.ones(2, requires_grad=True) * 2).exp().sum()
    assert trace._nodes() - before == 3
    monkeypatch.delattr(torch.autograd, "_get_sequence_nr")
    assert trace._nodes() == 0
