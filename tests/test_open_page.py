"""The page of the site on which a report.json or a trace is dropped (docs/open_page.py): what it
shows, that a stranger's file stays text, and that nothing leaves the browser.
"""

import base64
import gzip
import hashlib
import html
import importlib.util
import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from auditor.reports import renderer, summary, text

from auditor.extensions.tensorboard_tab import pages as tab
from tests.reports import golden_attack
from tests.reports import golden_report as golden
from tests.reports.browsing import NEEDS_CHROMIUM, axe_violations, chromium, enter, wait
from tests.reports.viewing import framed_trace

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("open_page", ROOT / "docs/open_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(maker):
    return dict(maker.pages())


def policy_of(page):
    return html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def as_json(report):
    return renderer("json").render(report).decode()


# -- as it is built --------------------------------------------------------------------------------


def test_the_pages_may_run_their_own_scripts_and_reach_nobody(made):
    for name, page in made.items():
        if not name.endswith(".html"):
            continue
        policy = policy_of(page)
        assert policy.startswith("default-src 'none'; script-src 'sha256-")
        assert "connect-src" not in policy and "http" not in policy and "*" not in policy
        assert page.index(policy) < page.index("<script")
        scripts = re.search(r"script-src ([^;]*);", policy)[1].split()
        assert all(
            hashed(each) in scripts
            for each in re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
        )
    first = made["open/index.html"]
    assert "unsafe" not in policy_of(first) and "{{" not in re.sub(r"`[^`]*`", "", first)
    (style,) = re.findall(r"<style>(.*?)</style>", first, re.DOTALL)
    assert f"style-src {hashed(style)};" in policy_of(first)
    assert not re.findall(r"(?:src|href)=\"(?!data:|\.\./index|#)[^\"]*\"", first)


def test_the_page_is_made_of_the_reports_own_style_and_scripts(made):
    for name in ("report.css", "report.js", "filter.js"):
        assert (ROOT / "reports/assets" / name).read_text("utf-8") in made["open/index.html"]
    assert (tab.ASSETS / "viewer.js").read_text("utf-8") in made["open/trace.html"]
    assert "Redistribution" in made["open/trace-viewer-license.txt"]


def test_a_site_without_the_viewer_says_so_and_opens_reports(maker, monkeypatch):
    monkeypatch.setattr(tab, "PACKAGE", "no_such_package")
    ((name, page),) = maker.pages()
    assert name == "open/index.html" and '"viewer": false' in page


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def driver():
    with chromium(browser="ALL", performance="ALL") as made:
        yield made


@pytest.fixture
def page(driver, made, tmp_path):
    for name, content in made.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, "utf-8")
    driver.switch_to.default_content()
    driver.get("about:blank")
    for log in ("performance", "browser"):
        driver.get_log(log)
    driver.get((tmp_path / "open/index.html").as_uri())
    return driver


DROP = """
const dropped = new DataTransfer();
for (const [name, packed] of Object.entries(arguments[0])) {
  dropped.items.add(new File([Uint8Array.from(atob(packed), (char) => char.charCodeAt(0))], name));
}
document.body.dispatchEvent(new DragEvent("drop", {dataTransfer: dropped, bubbles: true, cancelable: true}));
"""
OPENED = "return document.getElementById('said').textContent.endsWith(' is open')"
WRONG = "return document.getElementById('wrong').textContent"


def drop(browser, **files):
    packed = {
        name.replace("_", "."): base64.b64encode(
            content if isinstance(content, bytes) else content.encode()
        ).decode()
        for name, content in files.items()
    }
    browser.execute_script(DROP, packed)


def asked_for(browser):
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return {
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    }


def texts(browser, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.textContent)"
    return browser.execute_script(script, selector)


@pytest.mark.full
@NEEDS_CHROMIUM
def test_a_dropped_report_shows_its_findings_as_the_report_does(page):
    report = golden.rich_report()
    drop(page, report_json=as_json(report))
    wait(page, OPENED)
    found = report.findings
    assert texts(page, "article b.code") == [finding.code for finding in found]
    assert texts(page, ".cost") == [
        text.micro(summary.short_price(finding)) or "not priced" for finding in found
    ]
    assert texts(page, "article .severity") == [
        f"{mark} {level}"
        for level in (summary.severity(finding).value for finding in found)
        for mark in {"error": "▲", "warning": "◆", "note": "●"}[level]
    ]
    first = page.find_element("id", "finding-1")
    first.find_element("tag name", "summary").click()
    assert "self.running += loss.item()" in first.find_element("css selector", ".marked").text
    assert found[0].message in first.text and found[0].remedy.text in first.text
    page.find_element("id", "filter-words").send_keys("truth value")
    assert wait(page, "return document.getElementById('filtered').textContent") == "1 of 7 shown"
    assert {urlsplit(url).scheme for url in asked_for(page)} <= {"file", "data"}
    assert page.get_log("browser") == []


@pytest.mark.full
@NEEDS_CHROMIUM
def test_the_text_of_a_strangers_report_stays_text(page):
    drop(page, report_json=as_json(golden_attack.attack_report()))
    wait(page, OPENED)
    page.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert "<img src=x" in page.execute_script("return document.body.innerText")
    assert page.execute_script("return window.attacked ?? null") is None
    made = "#shown :is(script, img, svg, iframe, style, link, form, object, embed)"
    assert texts(page, made) == []
    leading = page.execute_script(
        "return [...document.querySelectorAll('#shown a')].map((each) => each.getAttribute('href'))"
    )
    assert leading and all(re.fullmatch(r"#[\w-]+|\.\./rules/\w+\.html", to) for to in leading)
    handlers = (
        "return [...document.querySelectorAll('#shown *')].some((each) => "
        "each.getAttributeNames().some((name) => name.startsWith('on') || name === 'style'))"
    )
    assert not page.execute_script(handlers)
    assert {urlsplit(url).scheme for url in asked_for(page)} <= {"file", "data"}


NOT_KEPT = {"schema": "audit-report/1", "run": {"target": "t"}, "findings": 5}


@pytest.mark.full
@NEEDS_CHROMIUM
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": 1}', "it is neither a report.json of audit nor a trace of torch.profiler"),
        ("[broken", "it is not JSON"),
        ("", "it is not JSON"),
        ("null", "it is neither a report.json of audit nor a trace of torch.profiler"),
        ("<!doctype html><p>", "it is a page: open report.html in the browser itself"),
        ('{"schema": "audit-report/9"}', "its schema is audit-report/9, and this page reads"),
        (json.dumps(NOT_KEPT), "it does not keep to audit-report/1"),
        (json.dumps(NOT_KEPT | {"run": None}), "it does not keep to audit-report/1"),
        (gzip.compress(b"{" * 4000, mtime=0)[:-9], "it cannot be read, or is damaged"),
    ],
)
def test_a_wrong_file_gets_one_sentence(page, content, said):
    drop(page, wrong_json=content)
    told = wait(page, WRONG)
    assert told.startswith(f"wrong.json cannot be shown: {said}") and told.count(". ") == 0
    assert told.endswith(".") and "filled" not in page.execute_script(
        "return document.body.className"
    )
    drop(page, report_json=as_json(golden.rich_report()))
    wait(page, OPENED)
    assert page.execute_script(WRONG) == ""


@pytest.mark.full
@NEEDS_CHROMIUM
def test_a_file_beyond_the_limit_is_not_read_to_its_end(page, maker, tmp_path):
    most = f'"most": {maker.MOST}'
    file = tmp_path / "open/index.html"
    text = re.sub(r'<meta http-equiv="Content-S[^>]*>', "", file.read_text("utf-8"))
    file.write_text(text.replace(most, '"most": 100000'), "utf-8")
    page.refresh()
    drop(page, trace_json_gz=gzip.compress(b" " * 100_001))
    assert "more than 97.7 KiB, the most that this page reads" in wait(page, WRONG)


@pytest.mark.full
@NEEDS_CHROMIUM
def test_a_dropped_trace_opens_with_the_findings_of_its_report(page):
    drop(
        page,
        trace_json_gz=gzip.compress(framed_trace().encode()),
        report_json=as_json(golden.rich_report()),
    )
    wait(page, OPENED)
    page.find_element("id", "show-trace").click()
    enter(page, "document.querySelector('iframe')", "/trace.html")
    assert wait(
        page, "const {slices, problem} = document.body.dataset; return slices || problem"
    ).isdigit()
    button = wait(page, "return document.querySelector('#findings li button')")
    assert button.text == "Show in trace (3)"
    assert texts(page, "#findings i")[0] == "at this place"
    button.click()
    chosen = "return [...viewer.brushingStateController.selection].map((slice) => slice.title)"
    assert page.execute_script(chosen) == ["aten::item"]
    page.switch_to.default_content()
    page.find_element("id", "show-report").click()
    assert page.find_element("id", "finding-1").is_displayed()
    assert {urlsplit(url).scheme for url in asked_for(page)} <= {"file", "data"}


@pytest.mark.full
@NEEDS_CHROMIUM
def test_a_trace_alone_has_no_findings_beside_it(page):
    drop(page, trace_json=framed_trace())
    wait(page, OPENED)
    assert not page.find_element("id", "show-report").is_displayed()
    enter(page, "document.querySelector('iframe')", "/trace.html")
    assert wait(
        page, "const {slices, problem} = document.body.dataset; return slices || problem"
    ).isdigit()
    assert texts(page, "#findings") == []


BLOCKED = """
const done = arguments[0], seen = [];
addEventListener("securitypolicyviolation", (event) => {
  seen.push(event.effectiveDirective);
  if (seen.length === 3) done(seen.sort());
});
fetch("http://127.0.0.1:9/").catch(() => null);
new Image().src = "http://127.0.0.1:9/x.png";
document.head.append(Object.assign(document.createElement("script"), {textContent: "window.attacked = 1"}));
"""


@pytest.mark.full
@NEEDS_CHROMIUM
def test_what_would_run_in_the_page_could_not_send_anything(page):
    asked = page.execute_async_script(BLOCKED)
    assert asked == ["connect-src", "img-src", "script-src-elem"]


@pytest.mark.full
@NEEDS_CHROMIUM
def test_axe_finds_no_violation_before_and_after_a_report(made, page, tmp_path):
    # axe's own script is let in: what it looks at is the page, not the policy.
    file = tmp_path / "open/index.html"
    file.write_text(
        re.sub(r'<meta http-equiv="Content-S[^>]*>', "", made["open/index.html"]), "utf-8"
    )
    page.refresh()
    assert axe_violations(page) == []
    drop(page, report_json=as_json(golden.rich_report()))
    wait(page, OPENED)
    assert axe_violations(page) == []
