"""The diagnostic pass ends when its steps are alike, and only then."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from auditor.rules.num.rows import NormRow

from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.step.clock import Clock
from auditor.capture.session import Session
from auditor.judging.build_report import method_of
from auditor.recordings.schema.sync import CallRow
from auditor.runs.schedule import ALIKE, DIAGNOSED_STEPS, STEADY_STEPS
from tests.capture.test_session import run
from tests.capture.test_session import session_of as of_probes

Write = Callable[[Context, int], object]


@pytest.fixture(autouse=True)
def equal_times(monkeypatch):
    """Steps of a test take so little that what else runs would look like phases."""
    monkeypatch.setattr(Clock, "own_us", property(lambda clock: 1e3, lambda clock, us: None), False)


class Writing(Probe):
    """Writes what a test says of each step."""

    name = "writing"
    parts = ("calls",)
    passes = frozenset({"loud"})
    write: Write

    def step_end(self) -> None:
        self.write(self.context, self.context.step)


def session_of(tmp_path: Path, write: Write) -> Session:
    """A session whose passes are all done."""
    session, (probe,) = of_probes(tmp_path, Writing, steps=40)
    probe.write = write
    run(session)
    return session


def diagnosed(tmp_path: Path, write: Write) -> int:
    passes = session_of(tmp_path, write).passes
    return Counter({each.name: each.done for each in passes})["loud"]


def called(context: Context, n: int = 1) -> None:
    context.add(CallRow(at=1, name="empty_cache", n=n, us=float(context.global_step)))


def every(distance: int, first: int = 0) -> Write:
    return lambda context, step: (step - first) % distance == 0 and called(context)


@pytest.mark.parametrize(
    ("write", "steps"),
    [
        (lambda context, step: called(context), STEADY_STEPS),
        (lambda context, step: None, STEADY_STEPS),
        (lambda context, step: called(context, 1 if step else 2), STEADY_STEPS + 1),
        (lambda context, step: called(context, 1 + step % 2), DIAGNOSED_STEPS),
        (every(2), DIAGNOSED_STEPS),
        (every(9), DIAGNOSED_STEPS),
        (every(STEADY_STEPS), DIAGNOSED_STEPS),
        (every(STEADY_STEPS, STEADY_STEPS - 1), DIAGNOSED_STEPS),
        (every(STEADY_STEPS + 1), STEADY_STEPS + 1),
        (lambda context, step: called(context, 1 + step), DIAGNOSED_STEPS),
    ],
)
def test_it_ends_when_so_many_steps_in_a_row_were_alike(tmp_path, write, steps):
    assert diagnosed(tmp_path, write) == steps


def test_the_number_of_a_step_and_its_times_are_no_difference(tmp_path):
    def norms(context: Context, step: int) -> None:
        context.add(
            NormRow(
                global_step=context.global_step,
                optimizer=0,
                at=1,
                norm=1.0 / (1 + step),
                clipped=False,
            )
        )

    assert diagnosed(tmp_path, norms) == STEADY_STEPS


def test_the_report_says_how_many_were_spared(tmp_path):
    session = session_of(tmp_path, lambda context, step: called(context))
    spared = {each.name: each.usual - each.done for each in session.passes if each.why == ALIKE}
    assert spared == {"loud": DIAGNOSED_STEPS - STEADY_STEPS}
    passes = [{"name": each.name, "steps": each.done} for each in session.passes]
    said = list(method_of({"passes": passes, "spared": spared}, [], 0.0))
    assert any(f"({STEADY_STEPS} steps of {DIAGNOSED_STEPS}" in each for each in said)
    assert not any(" of 40" in each for each in said)
