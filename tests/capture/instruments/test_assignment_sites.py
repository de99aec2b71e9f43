"""Which statement stores, where several files are one module's: cells of a notebook."""

from pathlib import Path

import pytest

from auditor.capture.instruments import assignment_sites
from auditor.capture.instruments.assignment_sites import NO_FILE, Sources, TensorPath

EARLIER = "kept = []\n\ndef step():\n    kept.append(loss)\n"


@pytest.mark.parametrize(
    ("latest", "line"),
    [
        ("# again\ndef step():\n    kept.append(loss)\n", 3),
        ("print(kept)\n", None),
        ("kept = []\n", None),
        ("def f(:\n", None),
    ],
    ids=["stores", "reads", "empties", "broken"],
)
def test_the_latest_cell_that_stores_is_named(tmp_path, monkeypatch, latest, line):
    cells = []
    for number, text in ((2, latest), (1, EARLIER)):
        path = tmp_path / f"In[{number}]"
        path.write_text(text)
        cells.append(str(path))
    monkeypatch.setattr(assignment_sites, "cells", lambda: cells)

    found = Sources().find(TensorPath(NO_FILE, "<module>", 0, "kept", "[*]"))

    assert (Path(found.file).name, found.line) == (("In[2]", line) if line else ("In[1]", 4))


def test_a_variable_that_no_cell_stores_has_no_line(monkeypatch):
    monkeypatch.setattr(assignment_sites, "cells", list)
    assert Sources().find(TensorPath(NO_FILE, "<module>", 0, "kept")).line is None
