"""``--format`` from the outside: on stdout, in files, one sentence where a file cannot be."""

import json
import xml.etree.ElementTree as ET

import pytest

from tests.timeline.kineto import text, training


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "step.json").write_text(text(training(3)))
    return tmp_path


def test_all_formats_at_once_go_to_their_files(folder, audit):
    names = {
        "terminal": "t.txt",
        "json": "r.json",
        "sarif": "new/audit.sarif",
        "junit": "j.xml",
        "github": "g.txt",
        "markdown": "m.md",
    }
    words = [word for name, file in names.items() for word in ("--format", f"{name}={file}")]
    done = audit("analyze", "step.json", *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    written = {name: (folder / file).read_text("utf-8") for name, file in names.items()}
    assert "SYNC001" in written["terminal"]
    assert json.loads(written["json"])["schema"] == "audit-report/1"
    assert json.loads(written["sarif"])["runs"][0]["results"]
    assert ET.fromstring(written["junit"]).tag == "testsuites"
    assert written["github"].startswith("::warning ")
    assert written["markdown"].startswith("### Audit of step.json")
    assert "SYNC001" in done.stdout, "the table stays on stdout"
    assert done.stdout.splitlines()[-1].endswith("report.html")


@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_a_format_without_a_file_has_stdout_alone(folder, audit, quiet):
    done = audit("analyze", "step.json", "--format", "sarif", *quiet, cwd=folder)
    assert json.loads(done.stdout)["version"] == "2.1.0"
    assert done.stderr.splitlines()[-1].endswith("report.html")
    assert ("SYNC001" in done.stderr) is not bool(quiet)


def test_a_file_that_turns_out_unwritable_is_one_sentence_after_the_report(folder, audit):
    (folder / "gone").symlink_to(
        folder / "step.json" / "x.xml"
    )  # a link into nowhere: nothing shows before it is opened
    done = audit("analyze", "step.json", "--format", "junit=gone", cwd=folder)
    assert done.returncode == 2
    assert "audit: --format: gone cannot be written: " in done.stderr
    assert (folder / "audits" / "step" / "report.json").is_file()


def test_the_manual_as_markdown_holds_each_page(folder, audit):
    done = audit("rules", "--format", "markdown", cwd=folder)
    for code in ("SYNC001", "COMP006"):
        page = audit("explain", code, cwd=folder).stdout
        finds = page.partition("## What it finds")[2].partition("##")[0].strip()
        assert finds
        assert finds in done.stdout
    assert json.loads(audit("rules", "--format", "json", cwd=folder).stdout) == json.loads(
        audit("rules", "--json", cwd=folder).stdout
    )
