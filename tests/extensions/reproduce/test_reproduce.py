"""The first operator that differs, its line and its cause; silence where two runs are alike."""

import inspect
import os
import random
import re
import time
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch

from auditor.capture.probes.reproduce import reproduce
from auditor.capture.probes.reproduce.sources import Sources
from auditor.extensions.reproduce import comparing, result
from auditor.extensions.reproduce.runs import Order
from auditor.model import Site
from auditor.recordings.schema.other_runs import ReproduceOperatorRow, ReproduceOutcomeRow
from auditor.runs.repeat import HELD, Repeat
from tests.extensions.reproduce import programs
from tests.extensions.reproduce.repeating import InForks, compared

OF_A_PROCESS = ("order_of_a_set", "hash_of_a_word")
"""Forks have one hash seed: these are run as whole processes."""

PLANTED, ALIKE = [], []
for _name, _made in vars(programs).items():
    if inspect.isfunction(_made) and _made.__module__ == programs.__name__:
        if not inspect.signature(_made).parameters and _name not in OF_A_PROCESS:
            (ALIKE if _name.startswith("alike_") else PLANTED).append(_name)

ORDER = Order("test:step", (), 3, "cpu")

LINES = Path(programs.__file__).read_text().splitlines()


def expected(name):
    """Line and cause: marked in the program's own lines, or elsewhere with its name."""
    own, start = inspect.getsourcelines(getattr(programs, name))
    for number, line in enumerate(own, start):
        if found := re.search(r"# (\w+|-)$", line.rstrip()):
            return number, found[1]
    for number, line in enumerate(LINES, 1):
        if found := re.search(rf"(\w+|-) in {name}\b", line):
            return number + ("the next line" in line), found[1]
    raise AssertionError(f"{name} has no mark")


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_difference_has_its_line_and_its_cause(name, tmp_path):
    line, cause = expected(name)
    outcome = compared(getattr(programs, name), tmp_path)
    found = outcome.found
    assert found is not None
    assert found.site is not None
    assert (found.site.line, *outcome.causes) == (line, *({cause} - {"-"}))


@pytest.mark.parametrize("name", ALIKE)
def test_alike_is_alike(name, tmp_path):
    outcome = compared(getattr(programs, name), tmp_path)
    assert outcome.found is None
    assert outcome.runs == 2 + (name == "alike_timed")  # once more with another clock
    assert outcome.one.operators


@pytest.mark.parametrize(("name", "late"), [("initial_weights", False), ("seeded_too_late", True)])
def test_a_seed_that_comes_too_late_is_no_missing_one(name, late, tmp_path):
    said = "\n".join(result.lines(compared(getattr(programs, name), tmp_path)))
    assert ("before it has its seed" in said, "has no seed" in said) == (late, not late)


def test_an_operator_of_another_order_is_bounded_in_ulps(tmp_path):
    outcome = compared(programs.racing_operator, tmp_path)
    assert outcome.found is not None
    assert outcome.found.operator is not None
    assert outcome.found.operator.name == "planted::total"
    assert re.search(r"at most [\d,]+ ulps", "\n".join(result.lines(outcome)))


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        ("drawn_in_a_helper", "# drawn here"),
        ("numpy_own_generator", "default_rng"),
        ("numpy_state_without_a_seed", "# drawn without one"),
        ("drawn_to_the_host", "# drawn by torch"),
        ("drawn_to_the_host_by_its_own", "# drawn by its own"),
    ],
)
def test_the_line_that_drew_is_named_too(name, mark, tmp_path):
    outcome = compared(getattr(programs, name), tmp_path)
    source = result.content(ORDER, outcome)["source"]
    assert mark in source["text"]
    assert f"{source['file']}:{source['line']}" in "\n".join(result.lines(outcome)[1:])


def test_lines_of_the_text_are_named_where_nothing_was_seen_to_draw(tmp_path):
    outcome = compared(programs.workers_own_generators, tmp_path)
    content = result.content(ORDER, outcome)
    assert (content["causes"], content["source"]) == (["numpy"], None)
    assert any("default_rng()" in each["text"] for each in content["to_blame"])
    assert any(line.startswith("look at: ") for line in map(str.strip, result.lines(outcome)))


@pytest.mark.parametrize(
    ("alike", "later", "cause"),
    [("system", "random", "system"), ("", "random", "random"), ("", "", "")],
)
def test_what_makes_runs_alike_to_the_end_goes_before_what_only_helps_here(
    alike, later, cause, tmp_path, monkeypatch
):
    runs = InForks(programs.two_causes, tmp_path)
    found, beyond = _at_operator(3), _at_operator(7)
    again = {(alike,): None, (later,): beyond}
    monkeypatch.setattr(runs, "_again", lambda _, held: again.get(held, found))
    assert runs._cause_among(["random", "system"], found) == cause


class _Placed(comparing.Difference):
    """At a line of its own."""

    @property
    def site(self):
        return Site("train.py", self.number)


def _at_operator(number):
    outcome = ReproduceOutcomeRow(name="loss", at=None, digest="", inputs=[number])
    row = ReproduceOperatorRow(number=number, at=None, name="", digest="", inputs=[])
    return _Placed(outcome, row)


def test_a_seed_that_differs_is_quoted(tmp_path):
    lines = result.lines(compared(programs.seeded_by_the_time, tmp_path))
    assert re.search(r"torch\.manual_seed at \S+:\d+ was given \d+ and \d+", lines[1])


def test_operators_that_lead_nowhere_are_a_note(tmp_path):
    alike, note = result.lines(compared(programs.alike_timed, tmp_path))
    assert alike.startswith("alike: ")
    assert re.match(r"note: \d+ operators? .* no loss and no weight$", note)


def test_operators_on_the_list_for_cuda_are_named(tmp_path):
    lines = result.lines(compared(programs.alike_memory_as_it_was, tmp_path))
    assert any("CUDA" in line and "index_put_" in line for line in lines)


def test_a_bound_on_operators_is_said_and_losses_are_compared_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "MOST_BEFORE", 2)
    monkeypatch.setattr(reproduce, "MOST", 4)
    outcome = compared(programs.alike_seeded, tmp_path)
    assert len(outcome.one.operators) + len(outcome.one.sources) == 4
    assert len(outcome.one.outcomes) == 6
    warned = "\n".join(outcome.warnings)
    assert "first 2 before the first step" in warned
    assert "first 4 were" in warned


def test_what_is_patched_is_put_back():
    def now():
        return [
            *(time.time, time.monotonic_ns, random.seed, random.random, random.Random.seed),
            *(os.urandom, torch.manual_seed, np.random.default_rng, np.random.rand),
        ]

    before, states = now(), (random.getstate(), torch.get_rng_state())
    sources = Sources()
    sources.begin(Repeat())
    try:
        assert all(one is not other for one, other in zip(before, now(), strict=True))
        assert time.time() > 1e9
        assert (random.getstate(), torch.equal(torch.get_rng_state(), states[1])) == (
            states[0],
            True,
        )
    finally:
        sources.end()
        sources.end()
    assert now() == before


def test_what_is_held_is_the_same_again():
    def drawn():
        sources = Sources()
        sources.begin(Repeat(HELD))
        try:
            torch.manual_seed(time.time_ns())
            return [
                random.random(),
                torch.rand(1).item(),
                np.random.default_rng().random(),
                np.random.rand(),  # noqa: NPY002
                time.perf_counter(),
                uuid.uuid4(),
                random.Random().random(),
                os.getpid(),
            ]
        finally:
            sources.end()

    states = random.getstate(), torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    try:
        assert drawn() == drawn()
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        np.random.set_state(states[2])  # noqa: NPY002
