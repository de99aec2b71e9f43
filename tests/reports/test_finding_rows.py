"""The list of findings: what stands below what, its filters, and the order that it tells."""

from dataclasses import replace

import pytest
from auditor.reports import html, page, renderer

from auditor.model import Finding, Remedy, Severity, Site, editors
from tests.reports import golden_report as golden

DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-x\n+y\n"


def found(code, line=1, file="train.py", **more):
    made = Finding(Site(file, line, "step", "x"), "says", code=code, key=f"{code}{line}")
    return replace(made, **{"severity": Severity.WARNING, **more})


def rows(*findings):
    cards = page.cards(replace(golden.silent_report(), findings=findings))
    return [
        [f"{row.card.finding.code} {row.behind}".strip() for row in group]
        for group in html.groups(cards)
    ]


def test_consequences_and_findings_of_one_line_stand_below_the_first():
    assert rows(
        found("GRAPH001", 3),
        found("MEM003", 9, follows="GRAPH001"),
        found("SYNC001", 5),
        found("NUM003", 3),
        found("SYNC002", 5, file="other.py"),
    ) == [
        ["GRAPH001", "MEM003 follows from GRAPH001", "NUM003 the same line"],
        ["SYNC001"],
        ["SYNC002"],
    ]


def choices(*findings):
    cards = page.cards(replace(golden.silent_report(), findings=findings))
    return html.choices(html.groups(cards))


def test_there_is_a_filter_only_where_there_is_a_choice():
    one = found("SYNC001")
    assert choices(one, found("SYNC002", 2)) == html.Choices((), (), (), patched=False)
    patch = Remedy("Do.", diff=DIFF)
    other = found("ACME001", 2, "b.py", severity=Severity.ERROR, remedy=patch)
    told = choices(one, other)
    assert [value for value, _ in told.severities] == ["error", "warning"]
    assert told.families == (("ACME", "ACME"), ("SYNC", "SYNC Host waits for the device"))
    assert [value for value, _ in told.files] == ["b.py", "train.py"]
    assert told.patched


@pytest.mark.parametrize(
    "address",
    [
        "javascript://x%0aalert(1)", "javascript:alert(1)", "https://example.org/x", "vscode:x",
        'vscode://"><script>', "data:text/html,x", "file:///etc/passwd", " vscode://file/x",
    ],
)  # fmt: skip
def test_no_other_address_becomes_a_link(address):
    report = golden.rich_report()
    place = str(report.findings[0].site)
    assert not editors.is_link(address)
    assert not editors.is_template(address + "{path}")
    shown = str(renderer("html").render(replace(report, editor_links={place: address})))
    assert "Open in editor" not in shown and 'class="editor"' not in shown
    good = {place: editors.link(editors.DEFAULT, '/home/a b/<i>"train.py', 7)}
    shown = str(renderer("html").render(replace(report, editor_links=good)))
    assert '<a class="editor" href="vscode://file/home/a%20b/%3Ci%3E%22train.py:7">' in shown


def test_templates_of_editors():
    for template in (
        editors.DEFAULT,
        "pycharm://open?file=/{path}&line={line}",
        "subl://open?url=file:///{path}",
    ):
        assert editors.is_template(template)
    for template in ("", "vscode://file/x", "vscode://file/{path}:{row}", "x://{path}", "{path}"):
        assert not editors.is_template(template)
