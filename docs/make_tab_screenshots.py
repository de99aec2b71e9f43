"""Pictures of the Audit tab in TensorBoard, for README and docs/tensorboard.md.

    python docs/make_tab_screenshots.py AUDITS RUN [CODE]

``AUDITS`` is a folder of runs (of examples/energy_flow, say), ``RUN`` the name of one of them.
Taken are the tab with that run's report (docs/images/tab-report.png), and its trace zoomed to the
first finding of ``CODE``, SYNC001 if none is given (docs/images/tab-trace.png). Needs Debian's
chromium and chromium-driver, and selenium.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
VIEW = "import sys; sys.path[:1] = [sys.argv.pop(1)]; from auditor.cli.main import main; main()"


def main() -> None:
    """Take both."""
    audits, run, code = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["SYNC001"])[0]
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-c", VIEW, str(ROOT), "view", audits, "--port", "0", "--no-browser"]
    viewing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert viewing.stdout is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = chromium(profile)
        try:
            browser.get(viewing.stdout.readline().strip())
            report(browser, run)
            trace(browser, run, code)
        finally:
            browser.quit()
            os.kill(viewing.pid, signal.SIGINT)
            viewing.wait()


def chromium(profile: str) -> Any:
    """Headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    flags = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1400,900",
    )
    for flag in (*flags, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def report(browser: Any, run: str) -> None:
    """The tab as it opens: the runs, and the report of one."""
    page(browser, run=run, view="report")
    wait(browser, "return document.querySelector('iframe[title=Report]:not([hidden])')")
    settle(browser)
    browser.save_screenshot(str(IMAGES / "tab-report.png"))


def trace(browser: Any, run: str, code: str) -> None:
    """The trace, zoomed to a finding."""
    page(browser, run=run, view="trace")
    shown = "document.querySelector('iframe[title=Trace]')?.contentWindow"
    wait(browser, f"return {shown}?.document.body?.dataset.slices")
    browser.switch_to.frame(browser.find_element("css selector", "iframe[title=Trace]"))
    zoomed = (
        "[...document.querySelectorAll('#findings li')].find((item) => "
        "item.innerText.startsWith(arguments[0]))"
    )
    browser.execute_script(
        f"const item = {zoomed}; item.scrollIntoView({{block: 'center'}}); "
        "item.querySelector('button').click()",
        code,
    )
    settle(browser)
    browser.save_screenshot(str(IMAGES / "tab-trace.png"))


def page(browser: Any, **address: str) -> None:
    """Stand in our page inside TensorBoard's frames, at an address of its own."""
    browser.switch_to.default_content()
    for frame in ("iframe[src*='name=audit']", "iframe[title=Audit]"):
        browser.switch_to.frame(wait(browser, f'return document.querySelector("{frame}")'))
    wait(browser, "return document.querySelector('#runs button')")
    browser.execute_script("location.hash = arguments[0]", urlencode(address))


def settle(browser: Any) -> None:
    """Wait for what is drawn in the next frames."""
    browser.execute_async_script(
        "const done = arguments[0]; setTimeout(() => requestAnimationFrame(() => done()), 1500)"
    )


def wait(browser: Any, script: str) -> Any:
    """What ``script`` returns once that is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(script))


if __name__ == "__main__":
    main()
