"""TARGET taken apart, and what steps when called; every mistake is one sentence with a way out."""

import functools
import sys

import pytest

from auditor.errors import TargetProblem
from auditor.runs import target


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "train.py").write_text("def step(): pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "module", "path", "attribute", "label"),
    [
        ("pkg.mod:step", "pkg.mod", "", "step", "pkg-mod-step"),
        ("pkg:trainer.step", "pkg", "", "trainer.step", "pkg-trainer-step"),
        ("deep/train.py:step", "", "deep/train.py", "step", "train-step"),
        ("deep/train:step", "", "deep/train.py", "step", "train-step"),
        ("deep/train.py", "", "deep/train.py", "", "train"),
    ],
)
def test_the_three_forms(project, text, module, path, attribute, label):
    address = target.parse(text)
    assert (address.module, address.path, address.attribute, address.label) == (
        module,
        path,
        attribute,
        label,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "a:",
        ":b",
        "a:1b",
        "a b",
        "deep/trian.py",
        "deep/trian.py:step",
        "nowhere/x.py",
        "deep/train.pyc",
    ],
)
def test_anything_else_is_refused(project, text):
    with pytest.raises(TargetProblem):
        target.parse(text)


def test_what_can_be_stepped():
    calls = []

    def plain():
        calls.append("plain")

    def with_defaults(a=1, *rest, **more):
        calls.append("defaults")

    def generator():
        calls.append("generator")
        yield

    assert target.stepper(plain, "m:plain")[0] == "callable"
    assert target.stepper(with_defaults, "m:d")[0] == "callable"
    assert target.stepper(functools.partial(lambda x: x, 1), "m:p")[0] == "callable"
    kind, step = target.stepper(generator, "m:g")
    assert kind == "generator"
    step()
    assert calls == ["generator"]
    with pytest.raises(StopIteration):
        step()
    assert target.stepper(iter([1, 2]), "m:i")[0] == "generator"


def test_an_argument_that_counts_steps_gets_their_numbers():
    class Trainer:
        taken = []

        def train(self, global_step: int, verbose=False):
            self.taken.append(global_step)
            return global_step

    kind, step = target.stepper(Trainer().train, "m:trainer.train")
    assert kind == "callable"
    assert [step(), step(), step()] == [0, 1, 2] == Trainer.taken
    assert step.__name__ == "train"
    other = target.stepper(lambda i: i, "m:other")[1]
    assert [other(), other()] == [0, 1]


def counted(step: float):
    return step


def counted_generator(i):
    yield i


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (counted, "wants arguments (step)"),
        (counted_generator, "wants arguments (i)"),
        (lambda *, i: i, "wants arguments (i)"),
        (lambda i, step: i, "wants arguments (i, step)"),
        (dict, "is a class"),
        (3, "is an int"),
        (lambda batch: batch, "wants arguments (batch)"),
        (lambda *, lr: lr, "wants arguments (lr)"),
    ],
)
def test_what_cannot(found, said):
    with pytest.raises(TargetProblem) as problem:
        target.stepper(found, "m:x")
    assert said in problem.value.message


def test_a_name_that_is_not_there_is_answered_with_those_that_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.argv", [*sys.argv])
    (tmp_path / "prog.py").write_text(
        "from shutil import copy\nnumber = 3\ndef train(): pass\nclass Trainer: pass\n"
    )
    (tmp_path / "bare.py").write_text("number = 3\n")
    hints = {
        "prog.py:step": "it defines train, Trainer",
        "prog.py:trian": "did you mean 'train'?",
        "prog.py:train.now": "",
        "bare.py:step": "it defines no function",
    }
    for text, hint in hints.items():
        with pytest.raises(TargetProblem, match="has no") as problem:
            target.load(target.parse(text), ())
        assert problem.value.hint == hint


def test_a_module_that_is_not_there_is_answered_with_the_way_to_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trainer.py").touch()
    assert target.no_module("trianer").hint == "did you mean 'trainer'?"
    assert target.no_module("zzz").hint == (
        "change to the program's folder, or give path/to/file.py:callable"
    )
