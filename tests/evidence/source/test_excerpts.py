"""Excerpts show the function and classes around a line, from source as it was recorded."""

import pytest

from auditor.evidence.source.files import excerpt
from auditor.model import Site
from auditor.recordings.folder import Recording

TEXT = (
    "import torch\n\nclass Trainer:\n    def __init__(self):\n        self.n = 0\n\n    def "
    "step(self, batch):\n"
)
TEXT += (
    "".join(f"        x{number} = {number}\n" for number in range(30)) + "        return self.n\n"
)


@pytest.fixture
def recorded(tmp_path):
    def write(text):
        (tmp_path / "sources").mkdir()
        (tmp_path / "sources" / "0.py").write_text(text)
        (tmp_path / "manifest.json").write_text(
            '{"schema": "audit-recording/1", "sources": {"t.py": "0.py"}}'
        )
        return Recording(tmp_path)

    return write


def test_heads_far_above_stand_before_the_lines(recorded):
    found = excerpt(recorded(TEXT), Site("t.py", 38))
    assert found.opening == ((3, "class Trainer:"), (7, "    def step(self, batch):"))
    assert (found.first, found.lines[0], found.lines[-1]) == (34, "        x26 = 26", "")


def test_a_function_that_begins_near_is_shown_from_its_head(recorded):
    found = excerpt(recorded(TEXT), Site("t.py", 15))
    assert (found.first, found.lines[0]) == (7, "    def step(self, batch):")
    assert found.opening == ((3, "class Trainer:"),)


@pytest.mark.parametrize("text", ["def broken(:\n    x = 1\n", "x = 1\n" * 3, ""])
def test_source_without_a_function_or_without_sense_has_lines_only(recorded, text):
    found = excerpt(recorded(text), Site("t.py", 2))
    assert found.opening == ()
    assert found.lines == tuple(text.split("\n"))
