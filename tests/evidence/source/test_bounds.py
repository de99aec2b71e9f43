"""Which containers some line cuts."""

from __future__ import annotations

import pytest

from auditor.evidence.source.bounds import Bounds
from auditor.evidence.source.files import Source


def cut(text: str, name: str = "self.seen[*]") -> bool:
    return Bounds(Source({"trainer.py": text})).cut("trainer.py", name)


@pytest.mark.parametrize(
    "text",
    [
        "def step(self):\n    self.seen.pop(0)",
        "def step(self):\n    del self.seen[:-8]",
        "def step(self):\n    self.seen = self.seen[-8:]",
        "def epoch(self):\n    self.seen = []",
        "def __init__(self):\n    self.seen = deque(maxlen=8)",
        "def __init__(self):\n    self.seen = [None] * 8",
        "def __init__(self):\n    self.seen = Ring(8)",
        "def step(self, i):\n    self.seen[i % 8] = 1",
        "def step(self):\n    self.seen[:] = self.seen[-8:]",
        "def step(self):\n    self.seen['loss'].clear()",
    ],
)
def test_a_line_that_cuts(text):
    assert cut(text)


@pytest.mark.parametrize(
    "text",
    [
        "def __init__(self):\n    self.seen = []",
        "def __init__(self):\n    self.seen: list = list()",
        "def __init__(self):\n    self.seen = defaultdict(list)",
        "def __init__(self):\n    self.seen = deque()",
        "def step(self):\n    self.other.pop(0)\n    self.seen.append(1)",
        "seen = []",
    ],
)
def test_a_line_that_does_not(text):
    assert not cut(text)


def test_a_file_that_is_not_recorded_may_cut_it():
    assert Bounds(Source({})).cut("gone.py", "self.seen[*]")


def test_the_last_name_counts():
    text = "def step(self):\n    self.seen.history.clear()"
    assert cut(text, "self.seen.history[*][*]")
    assert not cut(text, "self.seen[*]")
