"""What users read, word by word: some forty reports in every format.

``python -m tests.reports.test_frozen`` writes ``frozen/`` anew; read its diff before committing it.
"""

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from auditor.reports import RENDERERS, as_json, renderer

from tests.reports.frozen_reports import WHOLE, reports

FOLDER = Path(__file__).with_name("frozen")
REPORTS = reports()
SHORT = ("markdown", "agent", "github")
MARK = "=" * 20
"""Before each format's name."""


class Words(HTMLParser):
    """Text and links of a page, a line each, as people read them: no figures, no scripts."""

    LEFT_OUT = frozenset({"script", "style", "svg"})
    ALONE = frozenset({"meta", "link", "wbr", "path", "input", "br"})

    def __init__(self, page):
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []
        self.feed(page.replace("<wbr>", ""))

    def handle_starttag(self, tag, attrs):
        if tag not in self.ALONE:
            self._open.append(tag)
        if tag == "a":
            self.lines.append(f"-> {dict(attrs).get('href')}")

    def handle_endtag(self, tag):
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if data.strip() and not self.LEFT_OUT.intersection(self._open):
            self.lines.append(" ".join(data.split()))


def rendered(report):
    """A report in all formats but report.json; those for programs have no sections."""
    parts = []
    formats = [*RENDERERS] if report in WHOLE.values() else ["terminal", "html", *SHORT]
    for name in formats:
        shown = renderer(name).render(report)
        text = shown if isinstance(shown, str) else shown.decode()
        if name == "html":
            text = "\n".join(Words(text).lines)
        if name != "json":
            parts.append(f"{MARK} {name}\n{text}")
    return re.sub(r"(?m)[ \t]+$", "", "\n".join(parts)).rstrip() + "\n"


def file_of(name):
    return FOLDER / f"{re.sub('[^a-z0-9]+', '-', name)}.txt"


@pytest.mark.parametrize("name", REPORTS)
def test_what_users_read(name):
    known = file_of(name).read_text("utf-8")
    assert rendered(REPORTS[name]) == known, "if it is meant: python -m tests.reports.test_frozen"


@pytest.mark.parametrize("name", REPORTS)
def test_it_comes_back_from_json(name):
    report = REPORTS[name]
    assert as_json.load(as_json.Json().render(report)) == report


def test_no_file_is_left_over():
    assert {*FOLDER.iterdir()} == {*map(file_of, REPORTS)}


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    for each, made in REPORTS.items():
        file_of(each).write_text(rendered(made), "utf-8")
