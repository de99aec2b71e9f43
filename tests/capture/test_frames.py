"""Whose file is it? What is installed is nobody's trainer, in whatever environment; the target's own package is the user's."""

from __future__ import annotations

import os

import torch

from auditor.capture.frames import Frames
from auditor.recording import RecordingWriter


def test_installed_files_are_a_librarys_in_whatever_environment(tmp_path):
    frames = Frames(RecordingWriter(tmp_path / "r"), ("/other/lib/python3.11/site-packages/mine",))
    assert frames.is_user(str(tmp_path / "trainer.py"))
    assert not frames.is_user(torch.__file__)
    assert not frames.is_user(os.__file__)
    assert not frames.is_user("/other/lib/python3.11/site-packages/torch/nn/modules/module.py")
    assert not frames.is_user("/usr/lib/python3/dist-packages/numpy/__init__.py")
    assert frames.is_user("/other/lib/python3.11/site-packages/mine/train.py")
    assert not frames.is_user("<frozen importlib._bootstrap>")
