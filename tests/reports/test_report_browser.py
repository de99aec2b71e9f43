"""report.html in Chromium from file://: quiet console, inert attacks, charts that wake, keyboard, phone width, dark colours."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import golden_attack
import golden_report as golden
import pytest
from auditor.reports import renderer

from auditor.model import Report

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")

pytestmark = pytest.mark.skipif(not (CHROMIUM.exists() and DRIVER.exists()), reason="needs Debian's chromium and chromium-driver")

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        try:
            yield driver
        finally:
            driver.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Callable[..., Any]:  # noqa: ANN401
    """Opens a report at a width and colour scheme; returns the browser."""

    def opened(report: Report, width: int = 1280, scheme: str = "light") -> Any:  # noqa: ANN401
        page = tmp_path / "report.html"
        rendered = renderer("html").render(report)
        assert isinstance(rendered, str)
        page.write_text(rendered, "utf-8")
        browser.get_log("browser")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(page.as_uri())
        return browser

    return opened


def _wait(browser: Any, script: str) -> Any:  # noqa: ANN401
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda driver: driver.execute_script(script))


def _wake_charts(browser: Any) -> None:  # noqa: ANN401
    browser.execute_script("document.querySelector('figure.chart').scrollIntoView()")
    _wait(browser, "return document.querySelector('figure.chart .live-plot .main-svg')")


@pytest.mark.parametrize(
    "report", [golden.rich_report(), golden.failed_report(), golden_attack.attack_report()], ids=["rich", "failed", "attack"]
)
def test_no_console_message_no_request_no_attack(show: Callable[..., Any], report: Report) -> None:
    browser = show(report)
    _wake_charts(browser)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)") == []
    assert browser.execute_script("return window.attacked") is None
    injected = "main :is(img, iframe, object), .live-plot :is(a[href], img), [onload], [onerror], [onclick]"
    assert browser.execute_script("return document.querySelectorAll(arguments[0]).length", injected) == 0


def test_the_policy_stops_what_would_run_or_fetch(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    browser.execute_script(
        "const script = document.createElement('script'); script.textContent = 'window.attacked = 1'; document.body.append(script);"
    )
    assert browser.execute_script("return window.attacked") is None
    fetched = browser.execute_async_script(
        "const done = arguments[0]; fetch('https://example.org/').then(() => done(1), () => done(0));"
    )
    assert fetched == 0


def test_words_stand_before_any_chart_wakes(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    assert browser.execute_script("return typeof window.Plotly") == "undefined"
    assert browser.execute_script("return document.querySelectorAll('figure.chart svg .line').length") > 0
    assert "8.82 ms" in browser.execute_script("return document.querySelector('.headline').innerText")


def test_a_chart_becomes_plotly_when_it_is_looked_at(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    _wake_charts(browser)
    names = browser.execute_script("return document.querySelector('.live-plot').data.map((trace) => trace.name)")
    assert names == ["quiet pass", "loud pass", "marked step"]
    assert not browser.execute_script("return document.querySelector('.plot').checkVisibility()")


def test_charts_stay_still_pictures_without_decompression(show: Callable[..., Any]) -> None:
    browser = show(golden.silent_report())
    hide = {"source": "delete window.DecompressionStream"}
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", hide)
    try:
        show(golden.rich_report())
        browser.execute_script("document.querySelector('figure.chart').scrollIntoView()")
        assert browser.execute_script("return document.querySelector('.plot').checkVisibility()")
        assert browser.execute_script("return document.querySelector('.live-plot')") is None
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def test_every_finding_is_reached_by_keyboard(show: Callable[..., Any]) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    browser = show(golden.rich_report())
    browser.execute_script(
        "window.reached = []; addEventListener('focusin', (event) =>"
        " reached.push(event.target.closest('article')?.id ?? event.target.className));"
    )
    ActionChains(browser).send_keys(Keys.TAB * 120).perform()
    reached = browser.execute_script("return reached")
    assert reached[0] == "skip"
    assert {f"finding-{number}" for number in range(1, 8)} <= set(reached)


def test_a_link_to_a_rule_opens_its_manual(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    browser.find_element("css selector", "#finding-6 .kicker a").click()
    _wait(browser, "return document.getElementById('rule-finding-1').open")
    assert browser.find_element("css selector", "#rule-finding-1 h4").is_displayed()


def test_a_patch_is_copied_whole(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    grant = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", grant)
    button = browser.find_element("css selector", "[data-copy=finding-1-diff]")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    _wait(browser, "return document.getElementById('said').textContent === 'Copied'")
    copied = browser.execute_async_script("navigator.clipboard.readText().then(arguments[0], (e) => arguments[0](String(e)))")
    assert copied == golden.DIFF


@pytest.mark.parametrize(
    "report", [golden.rich_report(), golden.failed_report(), golden_attack.attack_report()], ids=["rich", "failed", "attack"]
)
@pytest.mark.parametrize("width", [390, 800, 1280])
def test_the_page_never_scrolls_sideways(show: Callable[..., Any], report: Report, width: int) -> None:
    browser = show(report, width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


def _luminance(rgb: list[float]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


# The colour of every text and the nearest opaque background behind it.
_COLOURS = """
const seen = new Map();
for (const element of document.querySelectorAll("body *")) {
  if (!element.checkVisibility() || element.closest(".vh, .live-plot, svg")) continue;
  if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
  let behind = element, ground = "rgba(0, 0, 0, 0)";
  while (behind && ground === "rgba(0, 0, 0, 0)") { ground = getComputedStyle(behind).backgroundColor; behind = behind.parentElement; }
  const ink = getComputedStyle(element).color;
  seen.set(ink + ground, [ink, ground, element.tagName + "." + element.className]);
}
return [...seen.values()];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("report", [golden.rich_report(), golden.failed_report()], ids=["rich", "failed"])
def test_all_text_has_aa_contrast(show: Callable[..., Any], report: Report, scheme: str) -> None:
    browser = show(report, scheme=scheme)
    pairs = browser.execute_script(_COLOURS)
    assert len(pairs) > 10
    for ink, ground, where in pairs:
        levels = sorted(
            _luminance([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) for colour in (ink, ground)
        )
        assert (levels[1] + 0.05) / (levels[0] + 0.05) >= 4.5, (where, ink, ground)


def test_dark_is_dark(show: Callable[..., Any]) -> None:
    background = "return getComputedStyle(document.body).backgroundColor"
    assert show(golden.rich_report(), scheme="dark").execute_script(background) == "rgb(13, 17, 23)"
    assert show(golden.rich_report()).execute_script(background) == "rgb(255, 255, 255)"


def test_print_shows_the_still_charts(show: Callable[..., Any]) -> None:
    browser = show(golden.rich_report())
    _wake_charts(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert browser.execute_script("return document.querySelector('.plot').checkVisibility()")
        assert not browser.execute_script("return document.querySelector('.live-plot').checkVisibility()")
        assert not browser.execute_script("return document.querySelector('button.copy').checkVisibility()")
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
