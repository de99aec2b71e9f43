"""The session around its probes: one that fails is stopped and told, and the others go on."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
import torch

from auditor.capture import session
from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes import base
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe
from auditor.capture.session import Session
from auditor.evidence.recorded.amp import Amp
from auditor.evidence.table import Evidence
from auditor.judging.engine import judge
from auditor.model import Finding, Severity
from auditor.model.devices import CPU, SHADOW, DeviceInfo
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.rule import Rule
from auditor.runs.plan import Passes, Plan

TOO_MUCH = "the trace holds {} of 3: more would take too much memory"


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
    [
        ("start", ["start", "stop"]),
        ("begin", ["start", "begin", "stop"]),
        ("end", ["start", "begin", "end", "stop"]),
    ],
)
def test_a_probe_that_fails_is_stopped_and_the_others_go_on(tmp_path, when, asked):
    writer, warnings = RecordingWriter(tmp_path), []
    plan = Plan("test:step", (), 2, 0, "cpu", str(tmp_path), (), Passes(trace=0))
    context = Context(writer, Frames(writer), device=CPU, plan=plan, warn=warnings.append)
    failing, watching = Failing(context), Watching(context)
    failing.when = when
    session = Session(context, [failing, watching], lambda name, done, total: None)
    session.install()
    while not session.done:
        session.begin()
        session.end()
    session.uninstall()
    assert failing.asked == asked
    assert watching.asked == ["start", *["begin", "end"] * 2, "stop"]
    assert session.failed == {
        "failing": {"status": "failed", "error": "OSError: gone", "parts": ["faults"]}
    }
    assert len(warnings) == 1


def test_a_probe_that_fails_inside_a_step_is_stopped_at_its_end(tmp_path):
    class Inside(Failing):
        when = "never"

        def start(self) -> None:
            super().start()
            BACKWARD_HOOKS.add(self)

        def stop(self) -> None:
            BACKWARD_HOOKS.remove(self)
            super().stop()

        def backward_begins(self, call: Backward) -> None:
            raise OSError("gone")

    writer = RecordingWriter(tmp_path)
    plan = Plan("test:step", (), 2, 0, "cpu", str(tmp_path), (), Passes(trace=0))
    context = Context(writer, Frames(writer), device=CPU, plan=plan)
    session = Session(context, [probe := Inside(context)], lambda name, done, total: None)
    weight = torch.ones(1, requires_grad=True)
    while not session.done:
        session.begin()
        (2 * weight).backward()
        session.end()
    assert probe.asked == ["start", "begin", "stop"]
    assert weight.grad is not None
    assert float(weight.grad) == 4.0
    assert session.failed["failing"]["error"] == "OSError: gone"


@pytest.mark.parametrize("hook", ["around", "optimizer"])
def test_a_rule_of_a_probe_whose_hook_raises_in_the_middle_is_not_clean(tmp_path, hook):
    """The step goes on, so does the probe; what it did not see is not taken for nothing found."""

    class Halfway(OptimizerProbe):
        name, parts, passes = "halfway", ("amp",), frozenset({"quiet"})
        told = 0

        def start(self) -> None:
            self.patches = Patches(self.missed)
            self.context.writer.touch("amp")
            if hook == "around":
                self.patches.around(torch.nn.Linear, "forward", before=lambda *_: self.look())

        def stop(self) -> None:
            self.patches.undo()

        def after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
            if hook == "optimizer":
                self.look()

        def look(self) -> None:
            self.told += 1
            if self.told in (2, 3):
                raise KeyError("of ours")

    writer, warnings = RecordingWriter(tmp_path), []
    plan = Plan("test:step", (), 4, 0, "cpu", str(tmp_path), (), Passes(trace=0))
    context = Context(writer, Frames(writer), device=CPU, plan=plan, warn=warnings.append)
    session = Session(context, [probe := Halfway(context)], lambda name, done, total: None)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    session.install()
    while not session.done:
        session.begin()
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        session.end()
    session.uninstall()
    assert probe.told == 4  # it went on
    assert warnings == ["the probe 'halfway' did not see everything (KeyError: 'of ours')"]
    write_manifest(tmp_path, {"schema": SCHEMA, "outcome": "completed", "probes": session.failed})
    assert [(row["step"], row["error"]) for row in Recording(tmp_path).rows("lapses")] == [
        (1, "KeyError: 'of ours'")
    ]
    verdict = judge(Evidence(Recording(tmp_path)), [AutocastUnused]).verdicts[0]
    assert verdict.status == "skipped"
    assert (
        verdict.reason
        == "the probe 'halfway' failed and did not see all of it (KeyError: 'of ours')"
    )


class AutocastUnused(Rule):
    """Looks at what the probe writes, and finds nothing."""

    code, severity, since = "TEST001", Severity.NOTE, "0.1"

    def detect(self, amp: Amp) -> Iterator[Finding]:
        return iter(())


def passes_of(
    folder: Path,
    steps: int,
    *probes: type[Probe],
    warmup: int = 0,
    device: DeviceInfo = CPU,
    warn: Callable[[str], None] = lambda text: None,
    known: Mapping[str, Any] = MappingProxyType({}),
    **more: Any,
) -> Counter[str]:
    """Steps of each pass of a session; ``known`` is what its context knows from the start."""
    word = "rehearse" if device is SHADOW else "cpu"
    more = {"purpose": Passes(trace=0), **more}
    plan = Plan("test:step", (), steps, warmup, word, str(folder), (), **more)
    writer, passes = RecordingWriter(folder), Counter[str]()
    context = Context(writer, Frames(writer), device=device, plan=plan, warn=warn)
    for name, value in known.items():
        setattr(context, name, value)
    made = [probe(context) for probe in probes]
    session = Session(context, made, lambda name, done, total: None)
    while not session.done:
        session.begin()
        passes[context.pass_name] += 1
        session.end()
    return passes


@pytest.mark.parametrize(("per_step", "traced"), [(1, 3), (1000, 2), (3000, 1)])
def test_a_trace_of_long_steps_ends_before_it_takes_too_much_memory(
    tmp_path, monkeypatch, per_step, traced
):
    nodes = iter(range(0, 100 * per_step, per_step))
    monkeypatch.setattr(session, "next_number", lambda: next(nodes))
    monkeypatch.setattr(base, "_peak", lambda: 0)
    warnings: list[str] = []
    passes = passes_of(tmp_path, 2, warn=warnings.append, purpose=Passes(trace=3))
    assert passes == {"quiet": 2, "trace": traced}
    assert (tmp_path / session.TRACE).is_file()
    assert [warning.partition(" that ")[2] for warning in warnings] == [TOO_MUCH.format(traced)] * (
        traced < 3
    )


@pytest.mark.parametrize(
    ("operators", "trained", "passes"),
    [
        (0, True, {"loud": 1}),
        (0, False, {"loud": 4}),  # it may still collect what it will train on
        (3, True, {"loud": 4}),
    ],
)
def test_a_rehearsal_ends_once_nothing_of_the_training_is_on_the_device(
    tmp_path, operators, trained, passes
):
    shadow = SimpleNamespace(operators=operators, memory=SimpleNamespace(counters=dict))
    known = {"shadow": shadow, "trained": trained}
    assert passes_of(tmp_path, 4, warmup=2, device=SHADOW, known=known) == passes
