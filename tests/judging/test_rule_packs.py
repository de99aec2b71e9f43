"""The pack of docs/rule-packs.md is installed as it stands there, and works."""

import importlib
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditor.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(kind):
    text = (ROOT / "docs/rule-packs.md").read_text("utf-8")
    return [body for found, body in FENCED.findall(text) if found == kind]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The two files of the document, as pip would leave them."""
    entry = re.search(r'entry-points."auditor.rules"\]\nacme = "(.*)"', blocks("toml")[0])[1]
    (tmp_path / "acme_rules.py").write_text(blocks("python")[0])
    info = tmp_path / "acme_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[auditor.rules]\nacme = {entry}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "acme_rules", raising=False)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("acme_rules", None)


def test_its_own_test_passes(installed):
    space = {}
    exec(compile(blocks("python")[-1], "test_acme.py", "exec"), space)
    space["test_saving_on_each_step_is_found"](installed)


def test_a_step_that_does_not_save_is_clean(installed):
    import torch

    from auditor.testing import assert_no_findings

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    report = assert_no_findings(step, steps=12, select="ACME", fail_on="note")
    assert [(each.code, each.status) for each in report.verdicts] == [("ACME001", "clean")]


def test_rules_and_explain_know_it(installed):
    assert "ACME001" in CliRunner().invoke(main, ["rules"]).output
    page = CliRunner().invoke(main, ["explain", "ACME001"])
    assert page.exit_code == 0
    assert "All teams share the storage" in page.output
    assert "often" in page.output
