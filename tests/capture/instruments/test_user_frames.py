"""Whose file is it? What is installed is a library's; the target's own package is the user's."""

import functools
import json
import os
import sys
from types import FunctionType, ModuleType

import pytest
import torch

from auditor.capture import process
from auditor.capture.instruments.user_frames import Frames
from auditor.recordings.folder import RecordingWriter

INSTALLED = "/other/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("roots", "users", "others"),
    [
        (
            [f"{INSTALLED}/mine"],
            ["{here}/trainer.py", f"{INSTALLED}/mine/train.py"],
            [
                *(torch.__file__, os.__file__, "<frozen importlib._bootstrap>"),
                f"{INSTALLED}/torch/nn/modules/module.py",
                "/usr/lib/python3/dist-packages/numpy/__init__.py",
                f"{INSTALLED}/mine_too/train.py",
            ],
        ),
        (
            ["{here}/project"],
            ["{here}/project/train.py", "{here}/project/model/layers.py"],
            [
                "{here}/project/.venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
                "{here}/project/env/lib/python3/dist-packages/lightning/trainer.py",
            ],
        ),
        ([f"{INSTALLED}/mine.py"], [f"{INSTALLED}/mine.py"], [f"{INSTALLED}/other.py"]),
    ],
    ids=["in an environment", "an environment inside", "one file"],
)
def test_what_is_installed_is_a_librarys_but_the_target(tmp_path, roots, users, others):
    writer = RecordingWriter(tmp_path / "r")
    frames = Frames(writer, tuple(root.format(here=tmp_path) for root in roots))
    seen = [frames.is_user(each.format(here=tmp_path)) for each in (*users, *others)]
    assert seen == [True] * len(users) + [False] * len(others)


def test_a_link_to_the_environment_does_not_make_it_the_users(tmp_path):
    (tmp_path / "lib" / "site-packages" / "framework").mkdir(parents=True)
    project = tmp_path / "project"
    project.mkdir()
    (project / "vendor").symlink_to(tmp_path / "lib" / "site-packages")
    frames = Frames(RecordingWriter(tmp_path / "r"), (str(project),))
    assert not frames.is_user(str(project / "vendor" / "framework" / "loop.py"))


def test_a_module_that_names_no_file_of_its_own_is_not_the_users(tmp_path, monkeypatch):
    frames = Frames(RecordingWriter(tmp_path / "r"))
    program, made_up = ModuleType("program"), ModuleType("made_up")
    program.__file__, made_up.__file__ = str(tmp_path / "program.py"), "_ops.py"
    assert frames.user_file(program) == program.__file__
    assert [
        frames.user_file(module) for module in (made_up, ModuleType("none"), torch, torch.ops)
    ] == [None] * 4


def test_what_the_compiler_writes_is_not_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("TRITON_HOME", str(tmp_path / "home"))
    frames = Frames(RecordingWriter(tmp_path / "r"), (str(tmp_path),))
    assert not frames.is_user(str(tmp_path / "compiled" / "ab" / "cab.py"))
    assert not frames.is_user(str(tmp_path / "kernels" / "x" / "kernel.py"))
    assert not frames.is_user(str(tmp_path / "home" / ".triton" / "cache" / "kernel.py"))
    assert not frames.is_user("/tmp/torchinductor_me/ab/cab.py")
    assert frames.is_user(str(tmp_path / "compiled_model.py"))
    assert frames.is_user(str(tmp_path / "home" / "train.py"))


class _Asked:
    """Stands where a tensor would: notes where its truth is asked."""

    def __init__(self, frames):
        self.frames, self.seen = frames, []

    def __bool__(self):
        self.seen.append(self.frames.number(sys._getframe(1)))
        return True

    def all(self):
        return self


@pytest.mark.skipif(sys.version_info < (3, 11), reason="columns of expressions came with 3.11")
@pytest.mark.parametrize(
    ("condition", "operand"),
    [
        ("if x.all(): pass", "x.all()"),
        ("if n is not None and not x.all(): pass", "x.all()"),
        ("if n > 2 and x: pass", "x"),
        ("y = 1 if x.all() else 0", "x.all()"),
        ("y = x.all() and 3", "x.all()"),
        ("y = not x", "x"),
        ("assert n and x.all(), 'text'", "x.all()"),
        ("while n > 8 or x.all(): break", "x.all()"),
        ("y = [1 for z in (1,) if n and x.all()]", "x.all()"),
    ],
)
def test_a_truth_test_stands_at_its_operand(tmp_path, condition, operand):
    """CPython gives the jump the place of the whole condition, or of its first operand."""
    writer = RecordingWriter(tmp_path / "r")
    asked = _Asked(Frames(writer))
    exec(compile(condition, str(tmp_path / "train.py"), "exec"), {"x": asked, "n": 5})
    writer.close()
    rows = [json.loads(line) for line in (tmp_path / "r/sites.jsonl").read_text().splitlines()]
    assert {condition[row["col"] : row["end_col"]] for row in rows} == {operand}


def _module(folder, name, source, file=None):
    """A module's names, as they are after its source ran."""
    path = folder / f"{name}.py"
    path.write_text(source)
    names = {"__name__": name, "__file__": str(path) if file is None else file}
    exec(compile(source, str(path), "exec"), names)
    return names


def test_a_call_is_one_place_however_often_it_ran(tmp_path):
    """The interpreter specializes what runs often; in 3.11 the frame then stands elsewhere."""
    frames = Frames(RecordingWriter(tmp_path / "r"))
    met = []

    class Number:
        def __float__(self):
            met.append(frames.number(sys._getframe(1)))
            return 0.0

    source = "def read(number):\n    for _ in range(200):\n        float(number), float(number)\n"
    space = {"__name__": "trainer"}
    exec(compile(source, str(tmp_path / "trainer.py"), "exec"), space)
    space["read"](Number())
    first, second = set(met[::2]), set(met[1::2])
    assert len(met) == 400 and len(first) == len(second) == 1 and first != second


@pytest.fixture
def stack(tmp_path):
    """Frames of a recording, a user's module and a library's: each calls what it is given."""
    source = "def call(what):\n    return what()\n"
    library = tmp_path / "site-packages" / "lib"
    library.mkdir(parents=True)
    frames = Frames(RecordingWriter(tmp_path / "recording"))
    return frames, _module(tmp_path, "user", source), _module(library, "lib", source)


def test_code_with_a_librarys_names_is_not_the_users(stack, tmp_path):
    """Its globals answer for it. Code that the user's file holds and that was given them by hand
    is passed over: nothing but a library's own tricks does that.
    """
    frames, user, library = stack
    library["call"](functools.partial(frames.user_frame, 0))  # is known from now on
    moved = FunctionType(user["call"].__code__, library)
    found, _ = moved(functools.partial(frames.user_frame, 0))
    assert found.f_code.co_filename == __file__


def test_names_of_a_user_that_is_gone_answer_for_nobody(stack, tmp_path):
    """Only a library's names are remembered by their number, and they are held."""
    frames, user, library = stack
    known = dict(frames._strangers)
    user["call"](functools.partial(library["call"], functools.partial(frames.user_frame, 0)))
    new = [names for number, (names, _) in frames._strangers.items() if number not in known]
    assert any(names is library for names in new)
    assert not any(names is user for names in new)


@pytest.mark.parametrize("file", [None, "relative.py", 7])
def test_names_without_a_whole_path_are_judged_by_their_code(tmp_path, file):
    frames = Frames(RecordingWriter(tmp_path / "recording"))
    names = _module(tmp_path, "script", "def call(what):\n    return what()\n", file)
    if file is None:
        del names["__file__"]
    found, _ = names["call"](functools.partial(frames.user_frame, 0))
    assert found.f_globals is names


def test_generated_code_among_the_users_names_is_neither(tmp_path):
    frames = Frames(RecordingWriter(tmp_path / "recording"))
    names = _module(tmp_path, "user", "def call(what):\n    return what()\n")
    exec(compile("def made(what):\n    return what()\n", "<string>", "exec"), names)
    found, via = names["call"](
        functools.partial(names["made"], functools.partial(frames.user_frame, 0))
    )
    assert found.f_code.co_name == "call" and via is None


def test_a_walk_reads_the_code_of_few_frames(stack):
    """Each reading is an audit event, heard by every hook of the process."""
    frames, user, library = stack

    nested = functools.partial(frames.user_frame, 0)
    for _ in range(50):
        nested = functools.partial(library["call"], nested)
    user["call"](nested)
    read = []

    def count(event, args):
        read.append(args[1])

    process.hear(("object.__getattr__",), count)
    try:
        found, via = user["call"](nested)
    finally:
        process.ignore(count)
    assert found.f_globals is user and via.f_globals is library
    assert read.count("f_code") <= 3
