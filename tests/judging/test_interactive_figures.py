"""Plotly is in a page only where somebody asked for it on this machine."""

import json
from pathlib import Path

import pytest
from auditor.reports import as_json

from auditor.cli import rule_selection, write_results
from auditor.errors import AuditProblem
from auditor.judging import catalogue, config
from auditor.recordings.folder import SCHEMA, Recording
from tests.reports import golden_report as golden


def settings(folder: Path, line: str) -> config.Settings:
    (folder / "pyproject.toml").write_text(f"[tool.audit]\n{line}\n")
    return config.load(folder, catalogue.rules())


def test_the_setting(tmp_path):
    assert not settings(tmp_path, "").interactive_figures
    assert not settings(tmp_path, "interactive-figures = false").interactive_figures
    assert settings(tmp_path, "interactive-figures = true").interactive_figures
    for value in ('"true"', "1", "[]"):
        with pytest.raises(AuditProblem, match="interactive-figures = .*; it is true or false"):
            settings(tmp_path, f"interactive-figures = {value}")


def test_the_option_asks_for_it_and_the_setting_stays(tmp_path):
    own = settings(tmp_path, "interactive-figures = true")
    for given in (config.Settings(), own):
        choice = rule_selection.Choice((), given)
        assert choice.with_figures(interactive=True).settings.interactive_figures
        assert choice.with_figures(interactive=False).settings == given


def test_the_page_is_told_and_report_json_is_not(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": SCHEMA}))
    asked = config.Settings(interactive_figures=True)
    told = write_results.shown_with(golden.rich_report(), Recording(tmp_path), asked)
    assert told.interactive_figures
    written = as_json.Json().render(told)
    assert b"interactive_figures" not in written
    smuggled = json.loads(written) | {"interactive_figures": True}
    assert not as_json.load(json.dumps(smuggled).encode()).interactive_figures
