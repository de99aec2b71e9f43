"""The picture of docs/tensorboard.md: ``python benchmarks/tab_screenshot.py audits/RUN [CODE]`` (needs Debian's chromium).

The Audit tab with the trace zoomed to the first finding of CODE (SYNC001).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    run, code = sys.argv[1], (sys.argv[2:] or ["SYNC001"])[0]
    IMAGES.mkdir(exist_ok=True)
    command = [sys.executable, "-c", "from auditor.cli import main; main()", "view", run, "--port", "0", "--no-browser"]
    viewing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert viewing.stdout is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = chromium(profile)
        try:
            picture(browser, viewing.stdout.readline().strip(), code)
        finally:
            browser.quit()
            os.kill(viewing.pid, signal.SIGINT)
            viewing.wait()


def chromium(profile: str) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1400,900", f"--user-data-dir={profile}"):
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def picture(browser: Any, url: str, code: str) -> None:
    browser.get(url)
    for _ in range(2):
        browser.switch_to.frame(wait(browser, "return document.querySelector('iframe')"))
    wait(browser, "return document.querySelector('#runs button')")
    browser.execute_script("document.getElementById('show-trace').click()")
    browser.switch_to.frame(wait(browser, "return document.querySelector('iframe[title=Trace]')"))
    wait(browser, "return document.body.dataset.slices")
    zoomed = "[...document.querySelectorAll('#findings li')].find((item) => item.innerText.startsWith(arguments[0]))"
    browser.execute_script(f"const item = {zoomed}; item.scrollIntoView(); item.querySelector('button').click()", code)
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => done()))")
    browser.save_screenshot(str(IMAGES / "tab-trace.png"))


def wait(browser: Any, script: str) -> Any:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(script))


if __name__ == "__main__":
    main()
