"""A device that is full: torch's own error, its snapshot, the lines, and limits."""

import pickle

import pytest

from tests.cuda.audited import FULL, GROWS, audited
from tests.lazily import Lazily

pytestmark = pytest.mark.usefixtures("inside")

PROGRAMS = {
    "first step": (FULL, ()),
    "later": (GROWS.replace("KEEP", "1000"), ("--memory-limit", "180MiB")),
    "fits": (GROWS.replace("KEEP", "2"), ("--memory-limit", "1GiB")),
}


@pytest.fixture(scope="module")
def reports(tmp_path_factory, audit):
    """Audits of :data:`PROGRAMS`, each made once."""

    def one(name: str):
        text, words = PROGRAMS[name]
        return audited(audit, tmp_path_factory.mktemp("o") / "own", text, *words)

    return Lazily(one)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("first step", "hidden = model[1](model[0](x))  # holds most"),
        ("later", "out = model(x)  # grows"),
    ],
)
def test_the_lines_that_hold_the_memory_are_named(reports, name, line):
    seen = reports[name]
    assert seen.code == 3
    (error,) = [each for each in seen.findings("error") if each["code"] == "MEM015"]
    text = (seen.folder.parent / "trainer.py").read_text().splitlines()
    number = 1 + text.index(f"    {line}")
    assert f"most is held by tensors created at trainer.py:{number}" in error["message"]


def test_an_error_in_the_first_step_has_the_programs_own_line(reports):
    assert reports["first step"].at("MEM015") == ["loss.backward()  # runs out"]


def test_both_snapshots_are_kept_and_only_the_second_has_a_history(reports):
    folder = reports["first step"].recording
    first = pickle.loads((folder / "oom_snapshot.pickle").read_bytes())
    again = pickle.loads((folder / "oom" / "oom_snapshot.pickle").read_bytes())
    assert not any(first["device_traces"])
    assert any(event["action"] == "oom" for event in again["device_traces"][0])


def test_a_limit_that_is_not_reached_changes_nothing(reports):
    assert reports["fits"].code == 0
    assert reports["fits"].findings() == []


def test_a_history_of_the_programs_own_needs_no_further_run(audit, tmp_path):
    own = "torch.cuda.memory._record_memory_history(stacks='python')\n"
    seen = audited(audit, tmp_path / "own", own + FULL)
    assert seen.at("MEM015") == ["loss.backward()  # runs out"]
    assert not (seen.recording / "oom").exists()
