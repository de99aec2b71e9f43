"""The session around its probes: one that fails is stopped and told, and the others go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from auditor.capture.frames import Frames
from auditor.capture.probe import Context, Probe
from auditor.capture.session import Session
from auditor.plan import Plan
from auditor.recording import RecordingWriter


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
