"""``audit view`` in Chromium: the tab, a report's sandbox, zoom to a finding; nothing leaves."""

import json
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from auditor.model import Finding, Site
from tests.reports import golden_report as golden
from tests.reports.browsing import NEEDS_CHROMIUM, axe_violations, chromium, enter, wait
from tests.reports.viewing import framed_trace, plain_trace, two_lines, viewing, write_run

pytestmark = [NEEDS_CHROMIUM, pytest.mark.full]

# the browser's own start page asks for chrome:, which never leaves it
_NETWORK = ("http:", "https:", "ws:", "wss:")
ATTACK = "</script><img src=https://attacker.example/ onerror=window.attacked=1>"


@pytest.fixture(scope="module")
def driver():
    with chromium(browser="ALL", performance="ALL") as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs: plain, with frames in its trace, with two lines that do the same, an attack."""
    audits = tmp_path_factory.mktemp("view") / "audits"
    report = golden.rich_report()
    write_run(audits / "framed", trace=framed_trace())
    write_run(audits / "plain", trace=plain_trace())
    site = Site(ATTACK, 1, ATTACK, ATTACK)
    attacked = Finding(site, ATTACK, code="SYNC001", name=ATTACK, key=ATTACK)
    trace = plain_trace().replace("aten::mm", json.dumps(ATTACK)[1:-1])
    write_run(audits / "two lines", *two_lines())
    report = replace(report, run=replace(report.run, target=ATTACK), findings=(attacked,))
    write_run(audits / "zz attack", report, trace)
    return audits


@pytest.fixture(scope="module")
def opened(driver, folder):
    """Opens a run's view afresh, inside TensorBoard's frames."""
    frames = {
        "iframe[src*='name=audit']": "/plugin_entry.html",
        "iframe[title=Audit]": "/page.html",
    }
    with viewing(str(folder), "--port", "0", cwd=folder) as (_, url):

        def go(fragment):
            driver.switch_to.default_content()
            driver.get("about:blank")  # nothing stays of the test before
            driver.get_log("browser")  # nor of a server that is gone
            driver.get(url)
            for frame, page in frames.items():
                enter(driver, f'document.querySelector("{frame}")', page)
            # a page that still loads would lose its fragment
            wait(driver, "return document.querySelector('#runs button')")
            driver.execute_script("location.hash = arguments[0]", fragment)
            return driver

        yield go


def _enter(browser, title):
    shown = (
        f"[...document.querySelectorAll('iframe')].find((frame) => frame.title === '{title}' && "
        "!frame.hidden) ?? null"
    )
    enter(browser, shown, "/report" if title == "Report" else "/viewer")


def _trace(browser):
    _enter(browser, "Trace")
    told = "const told = document.body.dataset; return told.slices ? 'read' : told.problem"
    assert wait(browser, told) == "read"


def _requests(browser):
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [one for one in messages if one["method"] == "Network.requestWillBeSent"]
    return {one["params"]["request"]["url"] for one in sent}


def test_runs_are_listed_and_a_report_runs_in_its_sandbox(opened):
    browser = opened("run=plain&view=report")
    names = wait(
        browser, "return [...document.querySelectorAll('#runs b')].map((name) => name.textContent)"
    )
    assert names == ["zz attack", "two lines", "plain", "framed"]  # the newest first
    _enter(browser, "Report")
    assert wait(browser, "return document.querySelector('h1')?.innerText").endswith(
        "examples.energy_flow.trainer:step"
    )
    assert browser.execute_script("return self.origin") == "null"
    wait(browser, "return document.querySelector('figure.chart .over')")
    told = browser.execute_script(
        "const over = document.querySelector('figure.chart .over');"
        "over.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight', bubbles: true}));"
        "return over.querySelector('.tip').textContent"
    )
    assert told.startswith("step ")


def test_a_finding_of_the_report_shows_in_the_trace(opened):
    browser = opened("run=framed&view=report")
    _enter(browser, "Report")
    lines = wait(
        browser,
        "return [...document.querySelectorAll('.traced:not([hidden])')].map((line) => "
        "line.closest('article').id)",
    )
    assert "finding-1" in lines
    memory = (
        "return [...document.querySelectorAll('article')].filter((one) => "
        "one.innerText.includes('GRAPH001')).map((one) => one.id)"
    )
    assert not set(browser.execute_script(memory)[:1]) & set(lines), (
        "what has no slices has no button"
    )
    browser.execute_script("document.querySelector('#finding-1 .traced button').click()")
    browser.switch_to.parent_frame()
    _trace(browser)
    title = (
        "return [...(viewer.brushingStateController.selection ?? [])].map((slice) => slice.title)"
    )
    assert wait(
        browser, f"const found = (() => {{ {title} }})(); return found.length && found"
    ) == ["aten::item"]
    first = browser.execute_script("return document.body.dataset.shown")
    browser.switch_to.parent_frame()
    browser.execute_script("document.getElementById('show-report').click()")
    _enter(browser, "Report")
    browser.execute_script("document.querySelector('#finding-1 .traced button').click()")
    browser.switch_to.parent_frame()
    _enter(browser, "Trace")
    wait(browser, f"return document.body.dataset.shown !== {json.dumps(first)}")


def test_a_finding_zooms_to_the_slice_of_its_line(opened):
    browser = opened("run=framed&view=trace")
    _trace(browser)
    button = wait(browser, "return document.querySelector('#findings li button')")
    assert button.text == "Show in trace (3)"
    place = "return document.querySelector('#findings i').textContent"
    assert browser.execute_script(place) == "at this place"
    scale = "return viewer.trackView.viewport.currentDisplayTransform.scaleX"
    before = browser.execute_script(scale)
    button.click()
    title, start, length = browser.execute_script(
        "const [slice] = viewer.brushingStateController.selection; return [slice.title, "
        "slice.start, slice.duration]"
    )
    assert (title, pytest.approx(length)) == ("aten::item", 0.05)
    assert pytest.approx(start % 1) == 0.72, "the one inside the frame, not the other"
    left, right = browser.execute_script(
        "const port = viewer.trackView.viewport, shown = port.currentDisplayTransform, width = "
        "port.modelTrackContainer.canvas.width;"
        "return [shown.xViewToWorld(0), shown.xViewToWorld(width)]"
    )
    assert left < start < start + length < right
    assert right - left == pytest.approx(5 * length)
    assert browser.execute_script(scale) > before
    button.click()
    (again,) = browser.execute_script(
        "return [...viewer.brushingStateController.selection].map((slice) => slice.start)"
    )
    assert again == pytest.approx(start + 1), "the next click goes to the next step's"


def test_lines_without_frames_share_the_slices_in_their_order(opened):
    browser = opened("run=two+lines&view=trace")
    _trace(browser)
    starts = {}
    for button in wait(browser, "return document.querySelectorAll('#findings li button')"):
        assert button.text == "Show in trace (3)"
        assert (
            browser.execute_script("return arguments[0].nextSibling.textContent", button)
            == "by the order of the lines"
        )
        button.click()
        key, start = browser.execute_script(
            "return [document.body.dataset.shown, "
            "[...viewer.brushingStateController.selection][0].start % 1]"
        )
        starts[key.rpartition(" ")[0]] = round(start, 3)
    assert starts == {"line 20": 0.72, "line 10": 0.1}


def test_findings_without_a_slice_say_so(opened):
    browser = opened("run=plain&view=trace")
    _trace(browser)
    items = wait(
        browser,
        "return [...document.querySelectorAll('#findings li')].map((item) => item.innerText)",
    )
    assert "Show in trace (3)" in items[0]
    assert "(not a matter of slices)" in next(item for item in items if item.startswith("GRAPH001"))


def test_texts_that_attack_stay_texts(opened):
    browser = opened("run=zz+attack&view=trace")
    assert wait(browser, "return document.querySelector('#subject').textContent") == ATTACK
    count = "return document.querySelectorAll('{}').length + (window.attacked ?? 0)"
    assert browser.execute_script(count.format("main img")) == 0
    _trace(browser)
    wait(browser, "return document.querySelector('#findings li button')").click()
    attacked = (
        "const one = [...viewer.model.getDescendantEvents()].find((slice) => "
        "slice.title?.includes('<img'));"
        "viewer.brushingStateController.changeSelectionFromTimeline(new tr.model.EventSet([one])); "
        "return one.title"
    )
    assert browser.execute_script(attacked) == ATTACK
    assert browser.execute_script(count.format("img")) == 0


def test_every_request_goes_to_this_machine(opened):
    browser = opened("run=framed&view=report")
    _enter(browser, "Report")
    wait(browser, "return document.querySelector('h1')")
    browser.switch_to.parent_frame()
    browser.execute_script("document.getElementById('show-trace').click()")
    _trace(browser)
    requests = _requests(browser)
    assert [url for url in requests if "/trace?" in url], "the trace was asked for"
    assert {urlsplit(url).hostname for url in requests if url.startswith(_NETWORK)} == {"127.0.0.1"}
    severe = [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    known = "favicon", "/data/plugin/pytorch_profiler"
    assert [message for message in severe if not any(word in message for word in known)] == []


@pytest.mark.parametrize("view", ["report", "trace"])
def test_axe_finds_no_violation_in_the_page_around(opened, view):
    browser = opened(f"run=plain&view={view}")
    wait(browser, "return document.querySelector('#subject').textContent")
    wait(browser, "return document.querySelector('#frames iframe')")
    assert axe_violations(browser) == []
