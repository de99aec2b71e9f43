"""The terminal's table: nothing cut that people copy, nothing passed on that steers a terminal,
everything said that was not looked at.
"""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from auditor.reports import renderer
from auditor.reports.terminal import Terminal

from auditor.model import Finding, Rank, Severity, Site, StepTimes, Verdict
from tests.reports import golden_attack
from tests.reports import golden_report as golden


def test_every_finding_shows_code_place_price_and_basis() -> None:
    lines = Terminal().render(golden.rich_report()).splitlines()
    (row,) = [line for line in lines if "trainer.py:142" in line]
    assert row.split() == [
        "warning",
        "SYNC001",
        "8.41",
        "ms",
        "/",
        "step",
        "measured",
        "1",
        "examples/energy_flow/trainer.py:142",
    ]
    (row,) = [line for line in lines if "GRAPH001" in line]
    assert "560 MiB measured" in row
    (row,) = [line for line in lines if "SYNC009" in line]
    assert "not priced" in row


def test_bases_are_never_added_together() -> None:
    shown = Terminal().render(golden.rich_report())
    assert "measured: 412 us per step of 38.2 ms (1.1%) could come back, from 1 finding" in shown
    assert "estimated: 4.1 ms per step of 38.2 ms (11%) could come back, from 1 finding" in shown
    assert "12.9 ms" not in shown


def test_long_places_are_whole_and_on_one_line() -> None:
    site = Site("/".join(["a folder with spaces"] * 30) + "/train-er.py", 12345)
    report = replace(
        golden.rich_report(),
        findings=(Finding(site, "slow", code="SYNC001", severity=Severity.NOTE),),
    )
    assert any(str(site) in line for line in Terminal().render(report).splitlines())


def test_words_fit_in_80_columns() -> None:
    for line in Terminal().render(golden.rich_report()).splitlines():
        assert len(line) <= 80 or ".py:" in line or line.startswith("examples.")


def test_plain_text_is_ascii_without_escapes() -> None:
    for report in (golden.rich_report(), golden.silent_report(), golden.failed_report()):
        shown = Terminal().render(report)
        assert shown.isascii()
        assert all(char.isprintable() or char == "\n" for char in shown)


def test_an_attack_cannot_steer_the_terminal() -> None:
    shown = Terminal().render(golden_attack.attack_report())
    assert all(char.isprintable() or char in "\n\t" for char in shown)
    assert "\\x1b[31mred" in shown
    assert "\\u202e" in shown
    assert "[bold red]markup[/bold red]" in shown
    assert max(map(len, shown.splitlines())) < 20_000


def test_colour_changes_no_word() -> None:
    from rich.text import Text

    coloured = Terminal(colour=True).render(golden.rich_report())
    assert "\x1b[" in coloured
    assert Text.from_ansi(coloured).plain.split() == Terminal().render(golden.rich_report()).split()


def test_nothing_found_says_who_looked_and_who_could_not() -> None:
    shown = Terminal().render(golden.silent_report())
    assert "No findings: 31 rules looked and found nothing; 6 rules could not look." in shown
    assert "    3  no CUDA device" in shown.split("could not look")[-1]


def test_a_failed_target_says_its_own_traceback_first() -> None:
    shown = Terminal().render(golden.failed_report())
    assert (
        "the target raised an exception in step 7 (timing pass), at "
        "examples/energy_flow/trainer.py:139" in shown
    )
    traceback = "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x128 and 256x10)"
    assert shown.index(traceback) < shown.index("found nothing") < shown.index("warning:")
    assert shown.count("mat1 and mat2") == 1


class _Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_environment_cannot_colour_what_was_judged_plain(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    assert "\x1b" not in Terminal().render(golden.rich_report())


def test_a_stream_that_holds_only_ascii_gets_ascii() -> None:
    report = replace(golden.rich_report(), warnings=("données",))
    assert "donn\\xe9es" in Terminal(encoding="ascii").render(report)
    assert "données" in Terminal().render(report)


def test_the_registry_gives_it_by_name() -> None:
    assert renderer("terminal").suffix == ".txt"
    with pytest.raises(ValueError, match="known formats: terminal, json, html"):
        renderer("pdf")


def test_what_was_skipped_takes_four_lines_at_most() -> None:
    report = golden.silent_report()
    skipped = tuple(
        Verdict(f"KERN{n:03}", "name", "skipped", f"reason {n % 9} " + "and so on " * (n % 9 * 4))
        for n in range(40)
    )
    shown = (
        Terminal()
        .render(replace(report, verdicts=skipped))
        .split("could not look")[-1]
        .splitlines()[1:]
    )
    assert (
        len(shown) == 4 and max(map(len, shown)) <= 80 and shown[-1].endswith("for 6 other reasons")
    )
    assert sum(int(line.split()[0]) for line in shown) == 40


@pytest.mark.parametrize(
    ("n", "said"), [(1, "10 ms (1 step)"), (6, "median 10 ms, 8 ms to 30 ms (6 steps)")]
)
def test_few_steps_have_no_percentile(n: int, said: str) -> None:
    report = golden.rich_report()
    times = StepTimes(10_000.0, 30_000.0, 8_000.0, 30_000.0, n)
    assert f"step time: {said}\n" in Terminal().render(
        replace(report, run=replace(report.run, step_us=times))
    )


def test_a_rank_alone_is_a_sentence() -> None:
    rank = Rank(
        None,
        "t.json",
        "host",
        "NVIDIA H100",
        1,
        10_000.0,
        4_000.0,
        4_000.0,
        0.0,
        0.0,
        0.0,
        500.0,
        2**30,
    )
    shown = Terminal().render(replace(golden.silent_report(), ranks=(rank,)))
    said = "of each step: device busy 4 ms, computing 4 ms, host waits 500 us, peak memory 1 GiB "
    assert said in " ".join(shown.split())


def test_a_rehearsal_alone_is_named_in_words() -> None:
    report = golden.rich_report()
    alone = replace(report, run=replace(report.run, device="rehearse"))
    assert "on a rehearsed GPU" in " ".join(Terminal().render(alone).split())
    assert "on <b>a rehearsed GPU</b>" in renderer("html").render(alone)


def test_a_rehearsal_is_said_beside_the_times() -> None:
    report = replace(
        golden.rich_report(), environment={"rehearsed on": "NVIDIA H200 (rehearsed on the CPU)"}
    )
    said = "GPU path rehearsed on the CPU as if on an NVIDIA H200: nothing of it is timed"
    assert said in " ".join(Terminal().render(report).split())
    assert said in renderer("html").render(report)
    assert "rehearsed:" not in Terminal().render(replace(report, environment={}))


@pytest.mark.parametrize("traceback", ["Traceback:\n  RuntimeError: one\ntwo\n  three\n", ""])
def test_a_message_of_several_lines_is_said_once(traceback: str) -> None:
    failed = golden.failed_report()
    assert failed.run.error is not None
    error = replace(failed.run.error, message="one\ntwo\n  three", traceback=traceback)
    shown = Terminal().render(replace(failed, run=replace(failed.run, error=error)))
    assert shown.count("RuntimeError: one") == 1
