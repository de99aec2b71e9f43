"""Headless Chromium for the tests of pages, and how they wait for what a page does."""

import contextlib
import importlib.util
import tempfile
from pathlib import Path

import pytest

CHROMIUM = Path("/usr/bin/chromium")
DRIVER = Path("/usr/bin/chromedriver")

NEEDS_CHROMIUM = pytest.mark.skipif(
    not (CHROMIUM.exists() and DRIVER.exists()),
    reason="needs Debian's chromium and chromium-driver",
)

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip

PATIENCE, EVERY = 90, 0.05
"""Seconds: a machine with a dozen other jobs needs twenty for a chart; asked often, a quick one is
not kept waiting.
"""


@contextlib.contextmanager
def chromium(**logs):
    """A browser with a profile of its own; ``logs`` are those of ``goog:loggingPrefs``."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", logs)
        driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        try:
            driver.set_script_timeout(PATIENCE)
            yield driver
        finally:
            driver.quit()


def wait(browser, script):
    """What ``script`` returns once that is true."""
    return _waiting(browser).until(
        lambda driver: driver.execute_script(script), f"never true: {script}"
    )


def axe_violations(browser):
    """What axe-core finds wrong with the document that the browser shows, frames in it left out."""
    found = importlib.util.find_spec("axe_core_python")
    assert found is not None and found.origin is not None, "pip install -e .[dev]"
    browser.execute_script(_LAID_OUT)
    browser.execute_script(Path(found.origin).with_name("axe.min.js").read_text("utf-8"))
    told = browser.execute_async_script(_AXE)
    assert told["passes"] > 10, told
    return [str(each) for each in told["violations"]]


# What is skipped while it is far below has no colours yet.
_LAID_OUT = """
const style = document.createElement("style");
style.textContent = ".finding, .chart { content-visibility: visible !important }";
document.head.append(style);
"""
_AXE = """
const done = arguments[0];
const words = (rule) => rule.nodes.map((node) => `${rule.id}: ${node.html.slice(0, 120)}: ${node.failureSummary}`);
axe.run(document, {iframes: false}).then(
  (told) => done({passes: told.passes.length, violations: told.violations.flatMap(words)}),
  (broken) => done({passes: 0, broken: String(broken)}),
);
"""


def enter(browser, frame, page):
    """Switch to the frame that the expression ``frame`` gives, once ``page`` (how its path ends)
    has loaded in it.

    chromedriver runs scripts for a frame that is about to get its page in the page around it, and
    stays there: so it is told again until a script really runs inside.
    """

    def inside(driver):
        element = driver.execute_script(f"return {frame}")
        if element is None:
            return False
        driver.switch_to.frame(element)
        path, state = driver.execute_script("return [location.pathname, document.readyState]")
        if path.endswith(page) and state == "complete":
            return True
        driver.switch_to.parent_frame()
        return False

    _waiting(browser).until(inside, f"{frame} never held {page}")


def _waiting(browser):
    from selenium.common.exceptions import NoSuchFrameException, StaleElementReferenceException
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(
        browser,
        PATIENCE,
        EVERY,
        ignored_exceptions=(NoSuchFrameException, StaleElementReferenceException),
    )


def wake_charts(browser, *figures):
    """Scroll to figures of a page with plotly, and wait until it has drawn them."""
    for figure in figures or ("figure.chart",):
        browser.execute_script("document.querySelector(arguments[0]).scrollIntoView()", figure)
        wait(browser, f"return document.querySelector('{figure} .live-plot .main-svg')")
