"""``audit reproduce --against``: another version of the program, by its commit."""

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import torch

from auditor.errors import AuditProblem, TargetProblem
from auditor.extensions.reproduce import result, runs
from tests.extensions.reproduce import programs
from tests.extensions.reproduce.repeating import InForks

Make = Callable[[], Callable[[], Any]]


def training(activation, *, lr=0.1):
    def make():
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)

        def step():
            hidden = activation(model(torch.ones(2, 4)))
            hidden.square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    return make


def relu(x):
    return torch.relu(x)


def relu_by_hand(x):
    positive = x > 0
    return torch.where(positive, x, 0.0)


def halved(x):
    kept = torch.relu(x)
    return kept * 0.5  # halved


@pytest.fixture
def versions(tmp_path, monkeypatch):
    """What the runs of a program and of the one before it show."""
    monkeypatch.setattr(runs, "files_of", lambda name, folder: ({"a.py": b""}, ""))
    return lambda now, before: InForks(now, tmp_path, before).outcome()


def test_another_way_to_the_same_values_is_alike(versions):
    outcome = versions(training(relu), training(relu_by_hand))
    assert (outcome.found, outcome.runs) == (None, 2)
    (line,) = result.lines(outcome)  # no note on operators whose lines moved
    assert " as in v1" in line


def test_a_change_has_its_line(versions):
    found = versions(training(halved), training(relu)).found
    assert found is not None
    assert found.site is not None
    assert found.site.text.endswith("# halved")


def test_the_version_before_has_a_line_too(versions):
    outcome = versions(training(relu), training(halved))
    assert outcome.found is not None
    assert outcome.found.twin is not None
    assert outcome.found.twin.site is not None
    assert outcome.found.twin.site.text.endswith("# halved")
    assert any("# halved" in line for line in result.lines(outcome))


def test_another_learning_rate_parts_at_the_optimizer(versions):
    found = versions(training(relu), training(relu, lr=0.2)).found
    assert found is not None
    assert found.outcome.name == "weights"
    assert found.site is not None
    assert "optimizer.step()" in found.site.text


SELF = training(relu)
UNLIKE = programs.the_date


@pytest.mark.parametrize(
    ("now", "before", "which"),
    [(UNLIKE, SELF, "the working directory"), (SELF, UNLIKE, "v1")],
    ids=["now", "before"],
)
def test_what_differs_from_itself_is_laid_beside_nothing(now, before, which, versions):
    with pytest.raises(TargetProblem, match=f"^{which} differs from itself"):
        versions(now, before)


# -- the commit ------------------------------------------------------------------------------------


def git(where, *words):
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *names, *words], cwd=where, env=environment, check=True)


@pytest.fixture
def project(tmp_path):
    """A repository whose project lies in a folder of it; one commit."""
    inside = tmp_path / "inside"
    (inside / "lib").mkdir(parents=True)
    (tmp_path / "outside.py").write_text("OUTSIDE = 1\n")
    (inside / "train.py").write_text("ONE = 1\n")
    (inside / "lib" / "gone.py").write_text("GONE = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return inside


def test_files_are_those_of_the_commit(project):
    (project / "train.py").write_text("ONE = 2\n")
    (project / "lib" / "gone.py").unlink()
    (project / "new.py").write_text("NEW = 1\n")
    (project / "untracked.py").write_text("")
    git(project, "add", "new.py")
    files, said = runs.files_of("HEAD", str(project))
    assert files == {"train.py": b"ONE = 1\n", "lib/gone.py": b"GONE = 1\n", "new.py": None}
    assert said == ""


def test_what_lies_outside_of_the_directory_is_said(project):
    (project / "train.py").write_text("ONE = 2\n")
    (project.parent / "outside.py").write_text("OUTSIDE = 2\n")
    files, said = runs.files_of("HEAD", str(project))
    assert list(files) == ["train.py"]
    assert said.startswith("1 file outside")


@pytest.mark.parametrize(
    ("name", "why"),
    [("HEAD", "has changed since"), ("nowhere", "no such commit"), ("--all", "no such commit")],
)
def test_nothing_to_compare_is_one_sentence(project, name, why):
    with pytest.raises(AuditProblem, match=why):
        runs.files_of(name, str(project))


def test_a_git_that_fails_is_no_project_without_changes(project, monkeypatch):
    (project / "train.py").write_text("ONE = 2\n")
    for failing in ("diff", "cat-file"):
        known = runs.git
        monkeypatch.setattr(
            runs,
            "git",
            lambda folder, *words, failing=failing: (
                None if words[0] == failing else known(folder, *words)
            ),
        )
        with pytest.raises(AuditProblem, match=f"git {failing} failed"):
            runs.files_of("HEAD", str(project))
        monkeypatch.undo()


def test_a_directory_without_a_repository_is_one_sentence(tmp_path):
    with pytest.raises(AuditProblem, match="no git repository"):
        runs.files_of("HEAD", str(tmp_path))
