"""The terminal's table: nothing cut that people copy, nothing steers, all not looked at is said."""

import io

import pytest
from auditor.reports import renderer
from auditor.reports.terminal import Terminal

from tests.reports import golden_attack
from tests.reports import golden_report as golden


def test_words_fit_in_80_columns():
    for line in Terminal().render(golden.rich_report()).splitlines():
        assert len(line) <= 80 or ".py:" in line or line.startswith("examples.")


def test_plain_text_is_ascii_without_escapes():
    for report in (golden.rich_report(), golden.silent_report(), golden.failed_report()):
        shown = Terminal().render(report)
        assert shown.isascii()
        assert all(char.isprintable() or char == "\n" for char in shown)


def test_an_attack_cannot_steer_the_terminal():
    shown = Terminal().render(golden_attack.attack_report())
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    assert "\\x1b[31mred" in shown
    assert "\\u202e" in shown
    assert "[bold red]markup[/bold red]" in shown
    assert max(map(len, shown.splitlines())) < 20_000


class _Tty(io.StringIO):
    def isatty(self):
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Terminal.for_stream(_Tty()).colour
    assert not Terminal.for_stream(io.StringIO()).colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Terminal.for_stream(_Tty()).colour
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal.for_stream(_Tty()).colour


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE"])
def test_the_environment_cannot_colour_what_was_judged_plain(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in Terminal().render(golden.rich_report())


def test_the_registry_gives_it_by_name():
    assert renderer("terminal").suffix == ".txt"
    with pytest.raises(ValueError, match="known formats: terminal, json, html"):
        renderer("pdf")
