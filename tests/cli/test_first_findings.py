"""What is said before an audit is over."""

import dataclasses
from types import SimpleNamespace

import pytest

from auditor.cli import rule_selection, run
from auditor.cli.first_findings import FirstFindings

ANOMALY = "import torch\ntorch.autograd.set_detect_anomaly(True){comment}\n"
SAID = (
    "{file}:2: NUM009 anomaly mode is on for the whole program: each backward checks every result "
    "for NaN; it is for debugging"
)


@pytest.fixture
def choice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rule_selection.choose((), ())


@pytest.mark.parametrize(
    ("file", "target"),
    [
        ("t.py", "t.py:step"),
        ("t.py", "t:step"),
        ("t.py", "t.py"),
        ("pack/t.py", "pack.t:step"),
    ],
)
def test_the_source_of_the_target_is_asked_before_it_runs(tmp_path, choice, file, target):
    (tmp_path / "pack").mkdir()
    (tmp_path / file).write_text(ANOMALY.format(comment=""))
    assert list(run._proven(target, choice)) == [SAID.format(file=file)]


@pytest.mark.parametrize(
    ("text", "select", "ignores"),
    [
        (ANOMALY.format(comment="  # audit: ignore[NUM009]"), (), {}),
        (ANOMALY.format(comment=""), ("SYNC",), {}),
        (ANOMALY.format(comment=""), (), {"t*.py": ("NUM",)}),
        ("import torch\ntorch.cuda.amp.GradScaler()\n", (), {}),  # a note
        ("def (", (), {}),
        (None, (), {}),
    ],
)
def test_what_the_table_will_not_have_is_not_said(tmp_path, choice, text, select, ignores):
    if text is not None:
        (tmp_path / "t.py").write_text(text)
    chosen = rule_selection.choose(select, ())
    settings = dataclasses.replace(chosen.settings, per_file_ignores=ignores)
    assert list(run._proven("t:step", dataclasses.replace(chosen, settings=settings))) == []


@pytest.mark.parametrize(
    ("baseline", "lines"),
    [(None, ["the source proves, before anything runs:", "  a", "  b"]), ("known", [])],
)
def test_what_is_known_is_not_news(baseline, lines):
    said: list[str] = []
    first = FirstFindings(SimpleNamespace(baseline=baseline), said.append)  # type: ignore[arg-type]
    first.announce_proven(["a", "b"])
    assert said == lines
