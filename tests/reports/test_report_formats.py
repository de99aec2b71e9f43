"""JUnit, GitHub annotations, Markdown: what they say; a stranger's text stays in its place."""

import re
import unicodedata
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from auditor.reports import RENDERERS, markdown, renderer

from auditor.judging.catalogue import FORMATS
from auditor.model import Finding, Remedy, Severity, Site
from tests.reports import golden_attack
from tests.reports import golden_report as golden

MEGABYTE = "\u202e" + "x|`" * 350_000


def _rendered(name, report):
    rendered = renderer(name).render(report)
    return rendered.decode() if isinstance(rendered, bytes) else rendered


def _endless():
    site = Site(MEGABYTE, 1, MEGABYTE, MEGABYTE)
    finding = Finding(
        site,
        MEGABYTE,
        code="SYNC001",
        name=MEGABYTE,
        facts=((MEGABYTE, MEGABYTE),),
        remedy=Remedy(MEGABYTE, diff=MEGABYTE),
    )
    report = golden.rich_report()
    return replace(
        report,
        run=replace(report.run, target=MEGABYTE),
        findings=(finding,) * 3,
        warnings=(MEGABYTE,),
    )


def test_every_format_of_the_command_line_has_a_renderer():
    assert set(FORMATS) == set(RENDERERS) - {"html"}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "report", [golden_attack.attack_report(), _endless()], ids=["attack", "endless"]
)
def test_nothing_that_steers_a_terminal_or_hides_passes(name, report):
    shown = _rendered(name, report)
    if name != "json":  # report.json keeps every text as it was
        hidden = {
            char for char in shown if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        } - {"\n", "\t"}
        assert hidden == set()
    assert shown.encode("utf-8")


@pytest.mark.parametrize("name", ["terminal", "sarif", "junit", "github", "markdown"])
def test_a_line_of_a_megabyte_stays_small(name):
    assert len(_rendered(name, _endless())) < 500_000


# -- JUnit -----------------------------------------------------------------------------------------


def test_an_attacked_document_parses_and_holds_the_words():
    report = golden_attack.attack_report()
    whole = ET.fromstring(_rendered("junit", report))
    assert len([*whole.iter("testcase")]) == 1 + len(report.verdicts)
    assert {element.tag for element in whole.iter()} == {
        "testsuites", "testsuite", "testcase", "failure", "error", "skipped", "system-err",
    }  # fmt: skip
    assert any("</script>" in (case.get("name") or "") for case in whole.iter("testcase"))


# -- GitHub ----------------------------------------------------------------------------------------

COMMAND = re.compile(
    r"::(error|warning|notice) ((?:file|line|title)=[^:,]*(?:,(?:file|line|title)=[^:,]*)*)::(.*)"
)


def _unescaped(value):
    for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
        value = value.replace(code, char)
    return value


def test_a_command_ends_only_where_ours_ends():
    site = Site("a,b:c%0A.py", 7)
    nasty = Finding(
        site, "50 %,\r\nline=1::error::x", code="X,Y", name="n::m", severity=Severity.ERROR
    )
    (line,) = _rendered("github", replace(golden.rich_report(), findings=(nasty,))).splitlines()
    command = COMMAND.fullmatch(line)
    assert command is not None
    fields = dict(part.split("=", 1) for part in command[2].split(","))
    assert {key: _unescaped(value) for key, value in fields.items()} == {
        "file": site.file,
        "line": "7",
        "title": "X,Y n::m",
    }


def test_every_line_of_an_attacked_report_is_one_of_our_commands():
    report = golden_attack.attack_report()
    lines = _rendered("github", report).splitlines()
    assert len(lines) == len(report.findings) + 1
    assert all(COMMAND.fullmatch(line) for line in lines)


# -- Markdown --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 200, 3000])
def test_it_fits_a_comment_and_says_what_it_left_out(count):
    report = golden_attack.attack_report()
    report = replace(
        report,
        findings=tuple(report.findings[number % len(report.findings)] for number in range(count)),
    )
    shown = _rendered("markdown", report)
    assert len(shown.encode()) <= markdown.LIMIT
    assert shown.count("<details>") == shown.count("</details>") <= count
    assert ("more in report.html" in shown) == (count >= 200)


def test_an_attack_stays_text():
    shown = _rendered("markdown", golden_attack.attack_report())
    outside = re.sub(r"(?ms)^(`{3,})diff$.*?^\1$", "", shown)
    assert set(re.findall(r"<[^>]*>", outside)) <= {
        "<!-- -->", "<b>", "</b>", "<code>", "</code>", "<details>", "</details>", "<summary>", "</summary>", "<sub>", "</sub>",
    }  # fmt: skip
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert rows
    assert {row.count("|") for row in rows} == {6}


@pytest.mark.parametrize(
    "words",
    [
        "@torvalds",
        "see #12",
        "http://attacker.example",
        "www.attacker.example",
        "GH-1",
        "# heading",
        "- item",
        "1. one",
        "a | b",
    ],
)
def test_words_are_no_mention_link_or_markup(words):
    written = markdown.escape(words)
    assert words not in written
    plain = re.sub(r"&#(\d+);", lambda code: chr(int(code[1])), written.replace("<!-- -->", ""))
    assert plain == words


def test_a_diff_cannot_end_its_block():
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+`````\n"
    finding = Finding(Site("x", 1), "slow", code="SYNC001", remedy=Remedy("change", diff=diff))
    shown = _rendered("markdown", replace(golden.rich_report(), findings=(finding,)))
    assert "\n``````diff\n" in shown
    assert shown.count("``````") == 2


def test_what_rules_put_between_backticks_is_code():
    finding = Finding(
        Site("a.py", 1, "f"), "`loss.item()` waits", code="SYNC001", name="n", key="k"
    )
    odd = replace(finding, message="a ` alone", key="k2")
    shown = renderer("markdown").render(replace(golden.silent_report(), findings=(finding, odd)))
    assert "| <code>loss.item()</code> waits |" in shown
    assert "a &#96; alone" in shown
