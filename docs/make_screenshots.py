"""Screenshots of the report of the broken Energy Flow trainer, for README and this folder.

    python docs/make_screenshots.py [REPORT]

Audits ``examples/energy_flow/broken`` (half a minute) unless the path of a report.html is given,
opens the page in headless Chromium at desktop and phone width, light and dark, and writes
docs/screenshots/*.png. Needs Debian's chromium and chromium-driver, and selenium.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "screenshots"
TRAINER = ROOT / "examples" / "energy_flow" / "broken"


class Shot(NamedTuple):
    """What is photographed; ``place`` is scrolled to, the top where it is empty."""

    name: str
    width: int
    height: int
    scheme: str
    place: str = ""


SHOTS = (
    Shot("desktop-light", 1280, 1000, "light"),
    Shot("desktop-dark", 1280, 1000, "dark", "#finding-1"),
    Shot("phone-light", 390, 844, "light", "#finding-1"),
    Shot("phone-dark", 390, 844, "dark"),
    Shot("memory-light", 1280, 620, "light", "#memory-1"),
    Shot("parts-dark", 1280, 460, "dark", "#parts"),
)


SHOW = "location.hash = arguments[0]; document.querySelector(arguments[0]).scrollIntoView()"
"""The address opens what is folded."""


def audited(folder: Path) -> Path:
    """The report of the broken trainer."""
    code = "from auditor.cli.main import main; main()"
    words = [
        sys.executable,
        "-c",
        code,
        "run",
        "trainer:step",
        "--out",
        str(folder / "audit"),
        "--quiet",
    ]
    subprocess.run(
        words,
        cwd=TRAINER,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    return folder / "audit" / "report.html"


def browser(folder: Path) -> Any:
    """Headless Chromium."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
    ):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={folder / 'profile'}")
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def taken(driver: Any, page: Path, shot: Shot) -> bytes:
    """One PNG of what the window shows."""
    features = [{"name": "prefers-color-scheme", "value": shot.scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    metrics = {
        "width": shot.width,
        "height": shot.height,
        "deviceScaleFactor": 1,
        "mobile": shot.width < 500,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    driver.get(page.as_uri())
    for _ in range(2):  # what is laid out on the way pushes the place down
        if shot.place:
            driver.execute_script(SHOW, shot.place)
        time.sleep(1)
    return base64.b64decode(
        driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})["data"]
    )


def main() -> None:
    """Take all of them."""
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        page = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else audited(folder)
        driver = browser(folder)
        try:
            for shot in SHOTS:
                content, path = taken(driver, page, shot), OUT / f"energy-flow-{shot.name}.png"
                path.write_bytes(content)
                print(f"{path.relative_to(ROOT)} {len(content) / 1000:.0f} kB")
        finally:
            driver.quit()


if __name__ == "__main__":
    main()
