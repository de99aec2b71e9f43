"""report.html as bytes: the user's text stays text, nothing is fetched, the order is kept."""

import base64
import gzip
import hashlib
import importlib.util
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from auditor.reports import renderer

from tests.reports import golden_attack
from tests.reports import golden_report as golden


def _page(report):
    page = renderer("html").render(report)
    assert isinstance(page, str)
    return page


class _Reader(HTMLParser):
    """Elements and text of a page, as a browser would parse them."""

    VOID = frozenset({"meta", "link", "wbr", "path", "input"})

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.raw: dict[str, str] = {}
        self._inside: list[str] = []
        self.unclosed: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._inside.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()
        elif tag not in self.VOID:
            self.unclosed.append(tag)

    def handle_data(self, data):
        if self._inside and self._inside[-1] in ("script", "style"):
            key = str(self.elements[-1][1].get("id") or self._inside[-1])
            self.raw[key] = self.raw.get(key, "") + data
        else:
            self.text.append(data)

    def words(self):
        return " ".join(" ".join(self.text).split())


@pytest.mark.parametrize(
    "report",
    [golden.rich_report(), golden.failed_report(), golden_attack.attack_report()],
    ids=["rich", "failed", "attack"],
)
def test_elements_nest_and_ids_are_unique(report):
    page = _Reader(_page(report))
    assert page.unclosed == []
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {
        attributes["href"]
        for tag, attributes in page.elements
        if tag == "a" and "href" in attributes
    }
    assert {str(link).lstrip("#") for link in links} <= set(ids)


def test_an_attack_adds_no_element_and_no_handler():
    plain = [
        *_Reader(_page(golden.rich_report())).elements,
        *_Reader(_page(golden.failed_report())).elements,
    ]
    attacked = _Reader(_page(golden_attack.attack_report()))
    assert {tag for tag, _ in attacked.elements} <= {tag for tag, _ in plain}
    names = {name for _, attributes in attacked.elements for name in attributes}
    assert not {name for name in names if name.startswith("on")}
    assert names <= {name for _, attributes in plain for name in attributes}
    scripts = 2  # the figures' data, and the page's own; the third is plotly
    assert sum(tag == "script" for tag, _ in attacked.elements) == scripts
    plotly = replace(golden_attack.attack_report(), interactive_figures=True)
    assert sum(tag == "script" for tag, _ in _Reader(_page(plotly)).elements) == scripts + 1


def test_an_attack_is_shown_as_text_with_its_hidden_characters_visible():
    page = _page(golden_attack.attack_report())
    for raw in ("</script><script>window", "<img src", "<svg onload", "<!--<script>"):
        assert raw not in page
    for hidden in ("\x1b", "\x00", "\x07", "\u202e", "\u2066", "\u200b", "\u2028", "\x9b"):
        assert hidden not in page
    words = _Reader(page).words()
    for shown in (
        "</script><script>window.attacked = 1</script>",
        "left\\u202eright",
        "\\x1b[31mred",
        "{{ 7 * 7 }}{% raw %}",
    ):
        assert shown in words
    page.encode("utf-8")


def test_endless_lines_do_not_make_an_endless_page():
    page = _page(golden_attack.attack_report())
    assert "more characters]" in page
    assert len(max(page.split(), key=len)) < 2_200_000
    assert "x" * 25_000 not in page


@pytest.mark.parametrize(
    "report", [golden.rich_report(), golden_attack.attack_report()], ids=["rich", "attack"]
)
def test_nothing_is_fetched_from_anywhere(report):
    page = _Reader(_page(report))
    for tag, attributes in page.elements:
        assert "src" not in attributes
        assert "srcset" not in attributes
        target = attributes.get("href")
        assert target is None or target.startswith("#") or (tag == "link" and target == "data:,")
    assert "url(" not in page.raw["style"]
    assert "@import" not in page.raw["style"]
    assert "http" not in page.raw["script"]


def test_no_script_writes_markup():
    page = _page(golden.rich_report())
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
    ):
        assert way not in page


def test_the_policy_names_the_very_scripts_of_the_page():
    page = _Reader(_page(replace(golden.rich_report(), interactive_figures=True)))
    (policy,) = [
        str(a["content"])
        for _, a in page.elements
        if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    plotly = gzip.decompress(base64.b64decode(page.raw["plotly"]))
    for script in (page.raw["script"].encode(), plotly):
        assert base64.b64encode(hashlib.sha256(script).digest()).decode() in policy
    assert "unsafe-eval" not in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]


def test_chart_data_stands_once_and_cannot_end_its_element():
    page = _page(golden_attack.attack_report())
    (held,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    assert not set("<>&\u2028\u2029") & set(held)
    lines = json.loads(held)["charts"][0]["lines"]
    assert lines[0]["name"] == golden_attack.ATTACKS[0]


def test_plotly_is_inside_only_where_it_was_asked_for_once():
    asked = _page(replace(golden.rich_report(), interactive_figures=True))
    assert asked.count('id="plotly"') == 1
    plain = _page(golden.rich_report())
    assert "plotly" not in plain.lower()
    assert len(plain) < 200_000 < 2_000_000 < len(asked)
    silent = _page(replace(golden.silent_report(), interactive_figures=True))
    assert 'id="plotly"' not in silent
    assert len(silent) < 100_000


def test_a_page_that_was_to_hold_plotly_says_where_it_was_not_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    page = _page(replace(golden.rich_report(), interactive_figures=True))
    assert "plotly was not installed where this page was written" in page
    assert 'id="plotly"' not in page


def test_an_out_of_memory_error_links_to_its_explanation():
    failed = golden.failed_report()
    shortage = replace(failed.findings[0], code="MEM015")
    page = _page(replace(failed, run=replace(failed.run, outcome="oom"), findings=(shortage,)))
    panel = page[page.index('id="failure-title"') : page.index('class="headline"')]
    assert '<a href="#finding-1">What held the memory' in panel
    assert "What held the memory" not in _page(failed)
