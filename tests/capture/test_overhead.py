"""Where steps are long, passes with instruments have fewer of them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.capture import session as sessions
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.passes import LONG_STEPS, Pass
from auditor.capture.probes.base import Context, Probe
from auditor.capture.session import Session
from auditor.judging import build_report
from auditor.judging.method import method_of
from auditor.model.devices import CPU, SHADOW
from auditor.recordings.folder import RecordingWriter
from auditor.runs.plan import Device, Drill, Passes, Plan

TRACELESS = Passes(trace=0)
WHOLE = {"loud": 20, "numbers": 3}


class Watching(Probe):
    """Has every pass of a run, and something else to write in each step."""

    name = "watching"
    parts = ("calls",)
    passes = frozenset({"loud", "numbers", "leaner"})

    def step_end(self) -> None:
        self.context.rows[str(self.context.global_step)] += 1


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step_s: float,
    kind: Device = "cpu",
    **more: Any,
) -> tuple[dict[str, int], list[str]]:
    """Steps of each pass, and what was said, of steps that take ``step_s`` by the clock."""
    now = [0.0]
    queue = SimpleNamespace(
        mark=lambda: now[0], own_us=lambda mark: 1e6 * (now[0] - mark), close=lambda: None
    )
    monkeypatch.setattr(sessions, "RunQueue", lambda: queue)
    writer = RecordingWriter(tmp_path)
    context = Context(writer, Frames(writer), device=SHADOW if kind == "rehearse" else CPU)
    said: list[str] = []
    context.warn = said.append  # type: ignore[method-assign]
    more = {"parts": (), "purpose": TRACELESS, **more}
    plan = Plan("test:step", (), 20, 0, kind, str(tmp_path), **more)
    session = Session(plan, context, [Watching(context)], lambda name, done, total: None)
    while not session.done:
        session.begin()
        now[0] += step_s
        session.end()
    return {each.name: each.done for each in session.passes if each.name != "quiet"}, said


@pytest.mark.parametrize(
    ("step_s", "passes"),
    [
        (0.1, WHOLE),
        (0.74, WHOLE),  # 20 steps of 0.75 s are 15 s, a quarter of a minute
        (0.8, {**WHOLE, "loud": 18}),
        (1.4, {**WHOLE, "loud": 10}),
        (5.5, {"loud": 8, "numbers": 2}),
        (30.0, {"loud": 8, "numbers": 1}),
    ],
)
def test_a_pass_of_long_steps_ends_with_its_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, passes: dict[str, int]
) -> None:
    done, said = run(tmp_path, monkeypatch, step_s)
    assert done == passes
    assert set(said) == ({LONG_STEPS} if done != WHOLE else set())


def test_more_time_gives_more_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, 2.5, overhead_s=205.0) == (WHOLE, [])


@pytest.mark.parametrize(
    ("step_s", "passes"),
    [
        (0.5, {"loud": 20, "leaner": 5, "numbers": 3}),
        (2.4, {"loud": 7, "leaner": 5, "numbers": 3}),
        (2.5, {"loud": 7, "numbers": 3}),
        (9.0, {"loud": 6, "numbers": 1}),
    ],
)
def test_a_rehearsal_of_long_steps_leaves_out_what_must_be_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float, passes: dict[str, int]
) -> None:
    assert run(tmp_path, monkeypatch, step_s, "rehearse")[0] == passes


@pytest.mark.parametrize(
    "more",
    [
        {"fit": 46},
        {"parts": ("course",)},
        {"world_size": 2, "rank": 0},
        {"purpose": Drill()},
    ],
    ids=["of a target that ends", "laid beside another run", "of a rank", "of a drill"],
)
def test_a_run_whose_steps_are_counted_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    quick, _ = run(tmp_path / "quick", monkeypatch, 0.001, **more)
    assert run(tmp_path / "slow", monkeypatch, 60.0, **more) == (quick, [])


def test_a_share_is_reached_with_the_step_that_would_go_beyond() -> None:
    trace = Pass("trace", 5, done=2)
    assert not trace.goes_beyond(4.0, 60.0, shadow=False)
    assert trace.goes_beyond(4.01, 60.0, shadow=False)
    assert not Pass("gradients", 2, done=1).goes_beyond(1e3, 60.0, shadow=False)


def test_the_report_says_which_passes_had_fewer_steps() -> None:
    manifest = {"passes": [{"name": "loud", "steps": 8}], "cut": {"loud": 12}}
    (said, *_) = method_of(manifest, [], 0.0)
    assert "8 steps of 20: steps are long" in said


def test_what_the_rehearsal_says_too_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def evidence(warnings: list[str], inside: Any) -> Any:
        recording = SimpleNamespace(manifest={"warnings": warnings})
        return SimpleNamespace(recording=recording, inside=lambda name: inside)

    monkeypatch.setattr(build_report.null_beside, "warnings", lambda given: ())
    rehearsed = evidence([LONG_STEPS, "else"], None)
    assert list(build_report._said_in(evidence([LONG_STEPS], rehearsed))) == [
        "in the rehearsal: else"
    ]
    assert len(list(build_report._said_in(evidence([], rehearsed)))) == 2
