"""Whose file is it? What is installed is nobody's trainer, in whatever environment; the target's
own package is the user's.
"""

from __future__ import annotations

import json
import os
import sys
from types import ModuleType

import pytest
import torch

from auditor.capture.instruments.user_frames import Frames
from auditor.recordings.folder import RecordingWriter


def test_installed_files_are_a_librarys_in_whatever_environment(tmp_path):
    frames = Frames(RecordingWriter(tmp_path / "r"), ("/other/lib/python3.11/site-packages/mine",))
    assert frames.is_user(str(tmp_path / "trainer.py"))
    assert not frames.is_user(torch.__file__)
    assert not frames.is_user(os.__file__)
    assert not frames.is_user("/other/lib/python3.11/site-packages/torch/nn/modules/module.py")
    assert not frames.is_user("/usr/lib/python3/dist-packages/numpy/__init__.py")
    assert frames.is_user("/other/lib/python3.11/site-packages/mine/train.py")
    assert not frames.is_user("/other/lib/python3.11/site-packages/mine_too/train.py")
    assert not frames.is_user("<frozen importlib._bootstrap>")


def test_an_environment_inside_the_project_is_not_the_users(tmp_path):
    project = tmp_path / "project"
    frames = Frames(RecordingWriter(tmp_path / "r"), (str(project),))
    assert frames.is_user(str(project / "train.py"))
    assert frames.is_user(str(project / "model" / "layers.py"))
    assert not frames.is_user(
        str(project / ".venv/lib/python3.11/site-packages/torch/nn/modules/module.py")
    )
    assert not frames.is_user(str(project / "env/lib/python3/dist-packages/lightning/trainer.py"))


def test_a_target_that_is_one_installed_file_is_the_users(tmp_path):
    frames = Frames(
        RecordingWriter(tmp_path / "r"), ("/other/lib/python3.11/site-packages/mine.py",)
    )
    assert frames.is_user("/other/lib/python3.11/site-packages/mine.py")
    assert not frames.is_user("/other/lib/python3.11/site-packages/other.py")


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
