"""Codes of rules that left: explained, passed over where they are chosen, and never used again."""

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from auditor.cli import rule_selection
from auditor.cli.main import main
from auditor.errors import AuditProblem
from auditor.judging import catalogue, config
from auditor.rule import Rule
from tests.conftest import ROOT

CODE = "COMP007"
SAID = f"audit: {catalogue.instead_of(CODE)}\n"


def test_no_rule_has_the_code_of_one_that_left():
    assert not {rule.code for rule in catalogue.rules()} & catalogue.LEFT.keys()
    assert all(catalogue.CODE.fullmatch(code) for code in catalogue.LEFT)
    page = (ROOT / "docs/log/left.md").read_text()
    assert set(catalogue.LEFT) <= set(re.findall(r"[A-Z]{2,12}[0-9]{3}", page))


def test_no_pack_brings_such_a_code(monkeypatch):
    pack = EntryPoint("acme", "tests.judging.test_left:PACK", catalogue.GROUP)
    monkeypatch.setattr(catalogue, "entry_points", lambda group: [pack])
    with pytest.raises(AuditProblem, match=f"brings {CODE}, the code of a rule that left"):
        catalogue.rules()


class Again(Rule):
    """A code that is used again."""

    code, severity, since = CODE, catalogue.Severity.NOTE, "1"
    detect = staticmethod(lambda: iter(()))


PACK = [Again]


def test_it_is_explained_in_one_sentence():
    told = CliRunner().invoke(main, ["explain", CODE.lower()])
    assert (told.exit_code, told.output) == (0, catalogue.instead_of(CODE) + "\n")
    told = CliRunner().invoke(main, ["explain", CODE, "--json"])
    assert json.loads(told.output) == {"code": CODE, "instead": catalogue.LEFT[CODE]}


def test_choosing_it_is_a_note(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    chosen = rule_selection.choose((CODE.lower(), "SYNC001"), (CODE,)).rules
    assert [rule.code for rule in chosen] == ["SYNC001"]
    assert capsys.readouterr().err == SAID
    Path("pyproject.toml").write_text(
        f"[tool.audit]\nignore = ['{CODE}']\n[tool.audit.rules.{CODE}]\nx = 1\n"
    )
    assert rule_selection.choose((), ()).rules == catalogue.rules()
    assert capsys.readouterr().err == SAID


def test_chosen_alone_it_leaves_none_to_ask():
    with pytest.raises(AuditProblem, match="no rule is left to run"):
        catalogue.choose((CODE,), ())


def test_a_knob_that_left_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.audit.rules.MEM008]\ngrid = 8\n")
    with pytest.raises(AuditProblem, match=r"MEM008.grid left in 0.3"):
        config.load(tmp_path, catalogue.rules([]))


def test_no_knob_that_left_is_there() -> None:
    known = {rule.code: rule.knobs().keys() for rule in catalogue.own_rules()}
    assert not [code for code, names in catalogue.KNOBS.items() if known[code] & set(names.split())]
