"""The gallery of the site: the examples, audited, each with a picture and its report.

    python docs/make_gallery.py [--again]

Writes build/gallery/<example>/ (report.html, report.json, picture.png); ``make docs`` runs it and
docs/site_pages.py makes pages of it. An example is audited again when its files, or the auditor's,
are newer than its report (half a minute each). Without chromium and selenium there is no picture.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "gallery"
REPORT, PAGE, PICTURE = "report.json", "report.html", "picture.png"
SOURCES = ("auditor", "rules", "reports")
STEPS = 20


class Example(NamedTuple):
    """A folder of examples/ with a README, and where in it the audit runs."""

    name: str
    place: Path
    target: str

    @property
    def command(self) -> str:
        """What was typed there."""
        return f"audit run {self.target} --steps {STEPS}"


def examples() -> Iterator[Example]:
    """Those that say what is expected of them; repaired ones stand beside their broken ones."""
    import tomllib

    for path in sorted(ROOT.glob("examples/**/expected.toml")):
        if path.parent.name != "repaired":
            name = path.relative_to(ROOT / "examples").parts[0]
            target = tomllib.loads(path.read_text("utf-8"))["target"]
            yield Example(name, path.parent, target)


def is_fresh(example: Example, folder: Path) -> bool:
    """Whether nothing has changed since the report was written."""
    made = folder / REPORT
    if not made.is_file() or not (folder / PAGE).is_file():
        return False
    read = [*example.place.glob("*.py")]
    read += [path for source in SOURCES for path in (ROOT / source).rglob("*") if path.is_file()]
    newest = max(path.stat().st_mtime for path in read if "__pycache__" not in path.parts)
    return made.stat().st_mtime > newest


def audit(example: Example, folder: Path) -> None:
    """The report and its page in ``folder``; the example itself is left as it is."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        copy, out = Path(name) / example.place.name, f"audits/{example.name}"
        shutil.copytree(example.place, copy, ignore=shutil.ignore_patterns("audits", "__pycache__"))
        with (copy / "pyproject.toml").open("a", encoding="utf-8") as settings:
            settings.write('[tool.audit]\neditor = ""\n')  # no links into a folder that is gone
        words = [sys.executable, "-m", "auditor", "run", example.target, "--steps", str(STEPS)]
        words += ["--out", out, "--quiet"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(words, cwd=copy, check=True, env=env, stdout=subprocess.DEVNULL)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / PICTURE).unlink(missing_ok=True)
        for file in (PAGE, REPORT):  # the report last: it says that all is there
            shutil.copyfile(copy / out / file, folder / file)


def picture(pages: list[Path]) -> None:
    """The first screen of each page, beside it."""
    shots = _screenshots()
    if shots is None:
        print("no pictures: they need chromium, chromium-driver and selenium")
        return
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        driver = shots.browser(Path(name))
        try:
            # Without its script the page shows the folder of the audit, not the one that it is in.
            driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
            for page in pages:
                shot = shots.taken(driver, page, shots.Shot("gallery", 1280, 800, "light"))
                page.with_name(PICTURE).write_bytes(shot)
        finally:
            driver.quit()


def _screenshots():  # noqa: ANN202
    there = all(Path(path).exists() for path in ("/usr/bin/chromium", "/usr/bin/chromedriver"))
    if not there or importlib.util.find_spec("selenium") is None:
        return None
    path = ROOT / "docs" / "make_screenshots.py"
    spec = importlib.util.spec_from_file_location("make_screenshots", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Make what is missing or old."""
    bare = []
    for example in examples():
        folder = OUT / example.name
        if "--again" in sys.argv or not is_fresh(example, folder):
            print(f"auditing {example.place.relative_to(ROOT)} ...", flush=True)
            audit(example, folder)
        if not (folder / PICTURE).exists():
            bare.append(folder / PAGE)
    if bare:
        picture(bare)


if __name__ == "__main__":
    main()
