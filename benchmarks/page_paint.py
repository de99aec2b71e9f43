"""First paint of report.html with 200 findings against a plain page of the same words, in headless
Chromium.

    python benchmarks/page_paint.py [--findings 200] [--rounds 15]

The plain page holds title, message, source and patch of each finding in bare HTML: no style, no
script. Both are opened from disk in turn, in a fresh tab each; printed are the medians of the
browser's own *first contentful paint*, when the whole page was parsed, and, for the report, how
long its memory chart of 5,000 points takes from being scrolled to to telling a value. Needs
Debian's chromium and chromium-driver, and selenium.
"""

from __future__ import annotations

import argparse
import html
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "reports")]

import golden_report  # noqa: E402
from auditor.reports import renderer  # noqa: E402

from auditor.model import Finding, Report  # noqa: E402
from auditor.model.charts import Layers, Tone  # noqa: E402

PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
PARSED = "return performance.getEntriesByType('navigation')[0].domInteractive"
ASK = """
const over = document.querySelector('#memory-1 .over');
if (!over) return;
over.scrollIntoView();
over.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}));
"""
TOLD = "return document.querySelector('#memory-1 .tip')?.textContent.length > 0"


def large_report(findings: int) -> Report:
    """The golden report with so many findings, each with source, evidence and patch, and a memory
    chart of 5,000 points.
    """
    report = golden_report.rich_report()
    many = tuple(_numbered(report.findings[number % 3], number) for number in range(findings))
    x = tuple(map(float, range(500)))
    waves = tuple(
        tuple((number * 7919 + 97 * layer) % 1000 << 20 for number in range(500))
        for layer in range(9)
    )
    tones = tuple(Tone(f"train.py:{layer} step", layer + 1) for layer in range(9))
    top = tuple(sum(column) for column in zip(*waves, strict=True))
    return replace(
        report,
        findings=many,
        layers=(Layers("Memory", "", "event", x, tones, waves, top, (), 100_000, ("MEM",)),),
    )


def _numbered(finding: Finding, number: int) -> Finding:
    return replace(finding, message=f"{finding.message} ({number})", key=f"{finding.key}-{number}")


def plain_page(report: Report) -> str:
    """The page's words without anything else."""
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>Audit</title><h1>Audit</h1>"]
    for finding in report.findings:
        excerpt = report.excerpts.get(str(finding.site))
        source = "\n".join(excerpt.lines) if excerpt else ""
        diff = finding.remedy.diff if finding.remedy and finding.remedy.diff else ""
        parts.append(
            f"<h2>{html.escape(finding.name)}</h2><p>{html.escape(finding.message)}</p><p>{html.escape(str(finding.site))}</p>"
        )
        parts.append(f"<pre>{html.escape(source)}</pre><pre>{html.escape(diff)}</pre>")
    return "".join(parts)


def browser(folder: str) -> Any:
    """Headless Chromium without background traffic."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ):
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={folder}")
    return webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))


def opened(driver: Any, page: Path) -> tuple[float, float]:
    """Milliseconds to the first paint and to the parsed page, in a new tab."""
    driver.switch_to.new_window("tab")
    driver.get(page.as_uri())
    painted = _wait(lambda: driver.execute_script(PAINT))
    return float(painted), float(driver.execute_script(PARSED))


def told(driver: Any) -> float:
    """Milliseconds from scrolling to the memory chart until it has told its first value, the
    reading of its data included.
    """
    begun = time.perf_counter()
    driver.execute_script(ASK)
    _wait(lambda: driver.execute_script(TOLD))
    return 1e3 * (time.perf_counter() - begun)


def _wait(ask: Any) -> Any:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if (answer := ask()) not in (None, False):
            return answer
        time.sleep(0.01)
    raise TimeoutError("the page did not get there in 30 s")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--findings", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    report = large_report(asked.findings)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = {"plain": Path(folder) / "plain.html", "report": Path(folder) / "report.html"}
        pages["plain"].write_text(plain_page(report), "utf-8")
        rendered = renderer("html").render(report)
        pages["report"].write_text(str(rendered), "utf-8")
        driver = browser(f"{folder}/profile")
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in pages}
        waking = []
        try:
            for _ in range(asked.rounds + 1):
                for name, page in pages.items():
                    times[name].append(opened(driver, page))
                waking.append(told(driver))
        finally:
            driver.quit()
    show(
        times,
        waking,
        {
            name: len(page)
            for name, page in (("plain", plain_page(report)), ("report", str(rendered)))
        },
    )


def show(
    times: dict[str, list[tuple[float, float]]], waking: list[float], sizes: dict[str, int]
) -> None:
    """Medians without the first round, which warms the browser up."""
    print("| page | size | first paint, ms | parsed, ms |\n|---|---|---|---|")
    paint = {}
    for name, rounds in times.items():
        paint[name], parsed = (
            statistics.median(column) for column in zip(*rounds[1:], strict=True)
        )
        print(f"| {name} | {sizes[name] / 1e6:.2f} MB | {paint[name]:.0f} | {parsed:.0f} |")
    print(f"\nratio of first paints: {paint['report'] / paint['plain']:.2f} (goal: at most 2)")
    print(
        f"memory chart, from scrolled to to its first value: {statistics.median(waking[1:]):.0f} ms"
    )


if __name__ == "__main__":
    main()
