"""The session around its probes: one that fails is stopped and told, and the others go on."""

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from types import SimpleNamespace

import pytest
import torch

from auditor.capture import session
from auditor.capture.instruments import live_objects
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
from auditor.model.devices import CPU, SHADOW
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.rule import Rule
from auditor.runs.plan import Passes, Plan

TOO_MUCH = "the trace holds {} of 3 steps: more would need too much memory"


class Watching(Probe):
    """Notes what it is asked, and fails where ``when`` says."""

    name, parts, passes, when = "watching", ("looks",), frozenset({"quiet"}), ""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.asked: list[str] = []

    def ask(self, what: str) -> None:
        self.asked.append(what)
        if what == self.when:
            raise OSError("gone")

    start, step_begin, step_end, stop = map(
        partial(partialmethod, ask), ("start", "begin", "end", "stop")
    )


class Failing(Watching):
    name, parts = "failing", ("faults",)


def session_of(folder, *probes, steps=2, warmup=0, device=CPU, warn=lambda text: None, **more):
    """A session, and its probes."""
    word = "rehearse" if device is SHADOW else "cpu"
    more = {"purpose": Passes(trace=0), **more}
    plan = Plan("test:step", (), steps, warmup, word, str(folder), (), **more)
    writer = RecordingWriter(folder)
    context = Context(writer, Frames(writer), device=device, plan=plan, warn=warn)
    made = [probe(context) for probe in probes]
    return Session(context, made, lambda name, done, total: None), made


def run(session: Session, step: Callable[[], object] = lambda: None) -> Counter[str]:
    """Steps of each pass."""
    passes = Counter[str]()
    session.install()
    while not session.done:
        session.begin()
        passes[session._context.pass_name] += 1
        step()
        session.end()
    session.uninstall()
    return passes


@pytest.mark.parametrize(
    ("when", "asked"),
    [
        ("start", ["start", "stop"]),
        ("begin", ["start", "begin", "stop"]),
        ("end", ["start", "begin", "end", "stop"]),
    ],
)
def test_a_probe_that_fails_is_stopped_and_the_others_go_on(tmp_path, when, asked):
    warnings = []
    session, (failing, watching) = session_of(tmp_path, Failing, Watching, warn=warnings.append)
    failing.when = when
    run(session)
    assert failing.asked == asked
    assert watching.asked == ["start", *["begin", "end"] * 2, "stop"]
    assert session.failed == {
        "failing": {"status": "failed", "error": "OSError: gone", "parts": ["faults"]}
    }
    assert len(warnings) == 1


def test_probes_that_end_a_pass_or_see_a_backward_list_all_objects_once(tmp_path, monkeypatch):
    counted: list[str] = []
    seen: list[tuple[str, bool]] = []

    class Lists(Watching):
        def start(self) -> None:
            BACKWARD_HOOKS.add(self)

        def backward_begins(self, call: Backward) -> None:
            self._look("backward")

        def stop(self) -> None:
            BACKWARD_HOOKS.remove(self)
            self._look("stop")

        def _look(self, when: str) -> None:
            counted.append(when)
            live_objects.live_instances(torch.nn.Module)
            seen.append((when, gc.isenabled()))

    class Other(Lists):
        name, parts = "other", ("others",)

    listed: list[int] = []
    of_gc = live_objects.gc.get_objects
    monkeypatch.setattr(
        live_objects.gc, "get_objects", lambda: listed.append(len(counted)) or of_gc()
    )
    weight = torch.ones(2, requires_grad=True)
    session, _ = session_of(tmp_path, Lists, Other, steps=1)
    run(session, lambda: weight.sum().backward())
    assert counted == ["backward", "backward", "stop", "stop"]
    assert listed == [1, 3]
    assert seen == [*[("backward", True)] * 2, *[("stop", False)] * 2]
    assert gc.isenabled()


def test_a_probe_that_fails_inside_a_step_is_stopped_at_its_end(tmp_path):
    class Inside(Failing):
        def start(self) -> None:
            self.ask("start")
            BACKWARD_HOOKS.add(self)

        def stop(self) -> None:
            BACKWARD_HOOKS.remove(self)
            self.ask("stop")

        def backward_begins(self, call: Backward) -> None:
            raise OSError("gone")

    session, (probe,) = session_of(tmp_path, Inside)
    weight = torch.ones(1, requires_grad=True)
    run(session, lambda: (2 * weight).backward())
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

    warnings = []
    session, (probe,) = session_of(tmp_path, Halfway, steps=4, warn=warnings.append)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters())
    run(session, lambda: (model(torch.ones(2)).sum().backward(), optimizer.step()))
    assert probe.told == 4  # it went on
    assert warnings == ["the probe 'halfway' did not see everything (KeyError: 'of ours')"]
    write_manifest(tmp_path, {"schema": SCHEMA, "outcome": "completed", "probes": session.failed})
    assert [(row["step"], row["error"]) for row in Recording(tmp_path).rows("lapses")] == [
        (1, "KeyError: 'of ours'")
    ]
    verdict = judge(Evidence(Recording(tmp_path)), [AutocastUnused]).verdicts[0]
    assert verdict.status == "skipped"
    wanted = "the probe 'halfway' failed and did not see all of it (KeyError: 'of ours')"
    assert verdict.reason == wanted


class AutocastUnused(Rule):
    """Looks at what the probe writes, and finds nothing."""

    code, severity, since = "TEST001", Severity.NOTE, "0.1"

    def detect(self, amp: Amp) -> Iterator[Finding]:
        return iter(())


@pytest.mark.parametrize(("per_step", "traced"), [(1, 3), (1000, 2), (3000, 1)])
def test_a_trace_of_long_steps_ends_before_memory_is_short(tmp_path, monkeypatch, per_step, traced):
    nodes = iter(range(0, 100 * per_step, per_step))
    monkeypatch.setattr(session, "next_number", lambda: next(nodes))
    monkeypatch.setattr(base, "_peak", lambda: 0)
    warnings: list[str] = []
    made, _ = session_of(tmp_path, warn=warnings.append, purpose=Passes(trace=3))
    assert run(made) == {"quiet": 2, "trace": traced}
    assert (tmp_path / session.TRACE).is_file()
    assert warnings == [TOO_MUCH.format(traced)] * (traced < 3)


@pytest.mark.parametrize(
    ("operators", "trained", "passes"),
    [
        (0, True, {"loud": 1}),
        (0, False, {"loud": 4}),  # it may still collect what it will train on
        (3, True, {"loud": 4}),
    ],
)
def test_a_rehearsal_ends_once_no_training_is_on_the_device(tmp_path, operators, trained, passes):
    shadow = SimpleNamespace(operators=operators, memory=SimpleNamespace(counters=dict))
    session, _ = session_of(tmp_path, steps=4, warmup=2, device=SHADOW)
    session._context.shadow, session._context.trained = shadow, trained
    assert run(session) == passes


@pytest.fixture
def thawed() -> Iterator[None]:
    """Nothing is frozen, as in a program; the suite freezes what it imports."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


def test_what_was_allocated_before_brings_about_no_full_collection_in_the_timing_pass(
    tmp_path, thawed
):
    session, _ = session_of(tmp_path, steps=2, warmup=1)
    young = []

    def step():
        young.append(gc.get_count()[2])  # at 11 a full collection may follow
        if len(young) == 1:
            for _ in range(3):
                gc.collect(1)

    run(session, step)
    assert young[1] == 0


def test_objects_that_the_program_froze_stay_frozen(tmp_path, thawed):
    gc.freeze()
    run(session_of(tmp_path, steps=1)[0])
    assert gc.get_freeze_count()
    gc.unfreeze()
