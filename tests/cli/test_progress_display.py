"""What is said while a run goes on: which pass of how many, how long, and not too often."""

import io
import os
import sys
from typing import Any

import pytest

from auditor.capture.process import ProgressPipe
from auditor.cli import progress_display as shown
from auditor.runs import progress

OUTLINE = [
    ("warmup", 5),
    ("quiet", 50),
    ("trace", 5),
    ("loud", 50),
    ("numbers", 3),
    ("gradients", 3),
]


class Time:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run_steps(display, time, name, steps, seconds, until=None):
    display(name, 0, steps)
    for step in range(until or steps):
        time.now += seconds
        display(name, step + 1, steps)


def test_a_line_for_each_pass_and_now_and_then_one_between():
    time, said = Time(), list[tuple[float, str]]()
    lines = shown.in_lines(lambda text: said.append((time.now, text)), time)
    lines.outline(OUTLINE)
    for name, steps in OUTLINE:
        run_steps(lines, time, name, steps, 1.0)
    passes = [text.partition(":")[0] for _, text in said]
    assert list(dict.fromkeys(passes)) == [f"pass {n} of 6" for n in range(1, 7)]
    apart = [after - before for (before, _), (after, _) in zip(said, said[1:], strict=False)]
    assert min(apart) >= shown.LEAST_S
    assert len(said) <= 12
    words = " ".join(text for _, text in said)
    assert not [name for name in ("quiet", "loud", "numbers", "gradients") if name in words]


def test_a_short_run_says_nothing_and_each_run_has_a_name():
    time, said = Time(), list[str]()
    lines = shown.in_lines(said.append, time)
    lines.outline(OUTLINE)
    run_steps(lines, time, "warmup", 5, 0.1)
    assert said == []
    for run in ("replay", "rehearsal"):
        time.now += 60
        lines.stage(run)
        assert said[-1] == f"{shown.RUNS[run]}: starting"
        lines.outline([("warmup", 2), ("loud", 12)])
        time.now += 60
        lines("loud", 3, 12)
        assert said[-1].startswith(f"{shown.RUNS[run]}, pass 2 of 2: diagnostic pass, step 3 of 12")
    time.now += 60
    lines.stage("again")
    assert said[-1] == "rehearsal of the GPU path, again, since it ended early: starting"


def test_a_files_name_is_no_markup_and_detail_is_said(monkeypatch):
    """`[/b]` in the name of a trace ended `audit analyze` on a terminal with rich's MarkupError."""
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(shown, "on_terminal", lambda: True)
    with shown.working("reading a[/b].json\x1b[2J", lambda: "run 3", quiet=False):
        pass
    assert "reading a[/b].json" in stderr.getvalue() and "run 3" in stderr.getvalue()
    assert "\x1b[2J" not in stderr.getvalue()
    with shown.working("verify", quiet=True):
        pass


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_is_silent(quiet, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stderr := io.StringIO())
    monkeypatch.setattr(shown, "FIRST_S", -100.0)
    with shown.shown(quiet=quiet) as (display, echo):
        display("quiet", 1, 50)
        echo("the target's own words\n")
    assert bool(stderr.getvalue()) is not quiet
    assert isinstance(display, progress.Display) is not quiet


# -- the process seam ------------------------------------------------------------------------------


def test_the_child_tells_its_passes_and_the_parent_hears_them():
    reading, writing = os.pipe()
    pipe = ProgressPipe(writing)
    pipe.outline(OUTLINE)
    pipe("warmup", 0, 5)
    pipe("warmup", 5, 5)
    os.close(writing)
    with os.fdopen(reading) as pipe_end:
        written = pipe_end.readlines()
    heard: list[Any] = []

    class Hearing:
        def stage(self, name): ...
        def outline(self, passes):
            heard.append(passes)

        def __call__(self, name, done, steps):
            heard.append((name, done, steps))

    pace = progress.Pace(Hearing())
    for line in written:
        pace.read(line)
    assert heard == [OUTLINE, ("warmup", 0, 5), ("warmup", 5, 5)]
    assert pace.steps == 5
