"""What a terminal is told: nothing steers it or forges a line, a broken stream is no error."""

import subprocess
import sys
from pathlib import Path

import pytest
from auditor.reports import text
from hypothesis import given
from hypothesis import strategies as st

from auditor.cli import console

ROOT = Path(__file__).resolve().parents[2]


def run(code, redirect=""):
    command = [
        "bash",
        "-c",
        f'"$0" -c "$1" {redirect}',
        sys.executable,
        f"from auditor.cli import console\n{code}",
    ]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain: 3 µs", "plain: 3 µs\n"),
        ("weights\x1b[2J\x1b]0;owned\x07", "weights\\x1b[2J\\x1b]0;owned\\x07\n"),
        ("a.pt\nlatest good: evil.pt", "a.pt\\nlatest good: evil.pt\n"),
        ("x\rgood", "x\\rgood\n"),
        ("::error file=a.py::owned", ": :error file=a.py::owned\n"),
        ("  ::set-output name=x::y", "  : :set-output name=x::y\n"),
        ("name ##[error]owned", "name ## [error]owned\n"),
        ("##vso[task.setvariable]x", "## vso[task.setvariable]x\n"),
        ("aten::add and torch::jit::f", "aten::add and torch::jit::f\n"),
        ("\u202egp.good", "\\u202egp.good\n"),
    ],
)
def test_a_line_is_one_line_and_inert(said, shown, capsys):
    console.say(said)
    console.say(said, err=True)
    assert capsys.readouterr() == (shown, shown)


@given(st.text())
def test_nothing_that_is_left_is_a_command(words):
    for line in text.inert(words).split("\n"):
        assert not (
            line.lstrip().startswith("::")
            and "::" in line.lstrip()[3:]
            and line.lstrip()[2:3].isalpha()
        )
        assert "##[" not in line


def test_a_reader_that_went_away_is_no_error():
    done = run(
        "for _ in range(20000): console.say('x' * 50)\nconsole.hand_over('y' * 10**6)", "| head -1"
    )
    assert (done.stdout, done.stderr) == ("x" * 50 + "\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_loses_words_and_refuses_data():
    done = run("console.say('x')\nconsole.say('said', err=True)", ">/dev/full")
    assert (done.returncode, done.stderr) == (0, "said\n")
    done = run("console.hand_over(b'diff')", ">/dev/full")
    assert done.returncode == 1
    assert "AuditProblem: stdout cannot be written: No space left on device" in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_the_caller_closed_is_opened_to_nowhere(closed, tmp_path):
    code = f"""
console.secure_streams()
console.say('lost'); console.say('lost', err=True)
with open({str(tmp_path / "report")!r}, 'w') as file:
    assert file.fileno() > 2
    console.say('lost'); file.write('kept')
"""
    done = run(code, closed)
    assert done.returncode == 0
    assert (tmp_path / "report").read_text() == "kept"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["rules", "explain SYNC001", "--help", "rules --json"])
def test_a_result_that_stdout_does_not_take_is_no_success(words):
    command = f'"$0" -m auditor {words} > /dev/full'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "No space left on device" in done.stderr and "Traceback" not in done.stderr
