"""A browser for the tests of pages, and how a report is opened in it."""

import pytest
from auditor.reports import renderer

from tests.reports.browsing import chromium


@pytest.fixture(scope="module")
def browser():
    with chromium(browser="ALL") as driver:
        yield driver


@pytest.fixture
def show(browser, tmp_path):
    """Opens a report at a width and colour scheme; returns the browser."""

    def opened(report, width=1280, scheme="light"):
        page = tmp_path / "report.html"
        rendered = renderer("html").render(report)
        assert isinstance(rendered, str)
        page.write_text(rendered, "utf-8")
        browser.get("about:blank")  # what the page before has to say, it says now
        browser.get_log("browser")
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        browser.get(page.as_uri())
        return browser

    return opened
